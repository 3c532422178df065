package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

const (
	// warmFor is how long a sandbox that was started ahead may wait for its attempt.
	warmFor = 5 * time.Minute
	// checkTimeout limits the check of a sandbox before it is used.
	checkTimeout = 2 * time.Second
	// spoiltMost is how many sandboxes of one environment may fail their check in a row before no more are started
	// ahead. Such an environment does not survive waiting.
	spoiltMost = 3
)

// pool starts sandboxes ahead of the attempts that will need them, in the order of those attempts. Each sandbox is
// used once: it then belongs to the attempt and never returns to the pool.
type pool struct {
	task     *Task
	ahead    int // maximum number of starting and waiting sandboxes
	launch   launcher
	upcoming func(n int) []*bucket // of the next n attempts
	wake     chan struct{}         // signals a change
	ended    chan struct{}         // closed when run has ended and the pool is empty
	work     sync.WaitGroup        // starts and removals
	buckets  map[string]*bucket    // by environment; not changed after the run has begun

	mu     sync.Mutex
	warm   []warm // waiting sandboxes, oldest first
	owned  int    // sandboxes being started or removed that no attempt waits for
	begun  int    // calls of expect
	closed bool
}

// bucket manages the sandboxes of one environment.
type bucket struct {
	spec     fumehood.Spec // without a sample
	starting int
	waiting  []chan fumehood.Sandbox // attempts that wait for a start in progress; at most as many as starting
	due      int                     // attempts that have begun and have not called take yet
	failing  bool                    // the last start failed
	spoilt   int                     // sandboxes that failed their check since the last success
}

// warm is a waiting sandbox.
type warm struct {
	sb     fumehood.Sandbox
	bucket *bucket
	until  time.Time
}

// launcher starts a sandbox, after waiting for a free slot.
type launcher func(ctx context.Context, op string, spec fumehood.Spec) (fumehood.Sandbox, error)

func newPool(t *Task, ahead int, launch launcher, upcoming func(int) []*bucket) *pool {
	return &pool{
		task: t, ahead: ahead, launch: launch, upcoming: upcoming,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), buckets: map[string]*bucket{},
	}
}

// bucketOf returns the bucket for the sandboxes of a spec, or nil if they cannot be started ahead. Specs that
// differ only in the sample share a bucket.
func (p *pool) bucketOf(spec fumehood.Spec) *bucket {
	if p.ahead == 0 || slices.ContainsFunc(spec.Ports, func(port fumehood.Port) bool { return port.Host != 0 }) {
		return nil
	}
	spec.Labels = maps.Clone(spec.Labels)
	delete(spec.Labels, LabelSample)
	delete(spec.Labels, LabelEpoch)
	key := environment(spec)
	s := p.buckets[key]
	if s == nil {
		s = &bucket{spec: spec}
		p.buckets[key] = s
	}
	return s
}

// environment returns a string that is equal for equal specs. Go's syntax distinguishes all values and sorts the
// keys of maps. Pointers in a spec are compared by address.
func environment(spec fumehood.Spec) string {
	if spec.Compose == nil {
		return fmt.Sprintf("%#v", spec)
	}
	project := *spec.Compose
	spec.Compose = nil
	return fmt.Sprintf("%#v %#v", spec, project)
}

// maintain maintains the pool until ctx ends, and then removes the remaining sandboxes.
func (p *pool) maintain(ctx context.Context) {
	defer close(p.ended)
	aged := time.NewTimer(warmFor)
	defer aged.Stop()
	for ctx.Err() == nil {
		aged.Reset(p.tend(ctx))
		select {
		case <-p.wake:
		case <-aged.C:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.closed = true
	left := p.warm
	p.warm = nil
	p.mu.Unlock()
	for _, w := range left {
		p.drop(ctx, w.sb, true)
	}
	p.work.Wait()
}

// poke wakes run.
func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default: // already signaled
	}
}

// tend removes sandboxes that are too old or no longer needed, and starts missing ones. It returns the time until
// the next sandbox is too old.
func (p *pool) tend(ctx context.Context) time.Duration {
	if p.ahead == 0 {
		return warmFor
	}
	upcoming := p.lockWithUpcoming()
	defer p.mu.Unlock()
	wanted := map[*bucket]int{}
	want := func(s *bucket, more int) {
		if _, known := wanted[s]; !known {
			wanted[s] = s.due - (s.starting - len(s.waiting))
		}
		wanted[s] += more
	}
	for _, s := range upcoming {
		want(s, 1)
	}
	for _, w := range p.warm {
		want(w.bucket, 0)
	}
	next, now := warmFor, time.Now()
	p.warm = slices.DeleteFunc(p.warm, func(w warm) bool {
		left := w.until.Sub(now)
		if left > 0 && wanted[w.bucket] > 0 {
			wanted[w.bucket]--
			next = min(next, left)
			return false
		}
		p.owned++
		p.drop(ctx, w.sb, false)
		return true
	})
	for _, s := range upcoming {
		if p.owned+len(p.warm) >= p.ahead {
			break
		}
		if wanted[s] > 0 && !s.failing && s.spoilt < spoiltMost {
			wanted[s]--
			p.startAhead(ctx, s)
		}
	}
	return next
}

// lockWithUpcoming locks p.mu and returns the buckets of the next attempts, none of which has begun meanwhile: otherwise
// another sandbox would be started for an attempt that has started its own.
func (p *pool) lockWithUpcoming() []*bucket {
	p.mu.Lock()
	for {
		begun := p.begun
		p.mu.Unlock()
		upcoming := p.upcoming(p.ahead) // which must not wait for p.mu
		p.mu.Lock()
		if begun == p.begun {
			return upcoming
		}
	}
}

// startAhead starts a sandbox in the background; p.mu is held.
func (p *pool) startAhead(ctx context.Context, s *bucket) {
	s.starting++
	p.owned++
	p.work.Go(func() {
		sb, err := p.launch(ctx, "start a sandbox ahead", s.spec)
		if err != nil && ctx.Err() == nil {
			p.task.log.Warn("a sandbox could not be started ahead", "task", p.task.opts.Name, "error", err)
		}
		p.put(ctx, s, sb)
		p.poke()
	})
}

// put passes a new sandbox to a waiting attempt, or keeps it in the pool; nil means that its start failed.
func (p *pool) put(ctx context.Context, s *bucket, sb fumehood.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.starting--
	s.failing = sb == nil
	if len(s.waiting) > 0 { // the start is no longer counted as owned, see take
		s.waiting[0] <- sb
		s.waiting = s.waiting[1:]
		return
	}
	switch {
	case sb == nil:
		p.owned--
	case p.closed:
		p.drop(ctx, sb, true)
	default:
		p.owned--
		p.warm = append(p.warm, warm{sb, s, time.Now().Add(warmFor)})
	}
}

// drop removes a sandbox that was never used.
func (p *pool) drop(ctx context.Context, sb fumehood.Sandbox, last bool) {
	p.work.Go(func() {
		_ = p.task.End(ctx, sb) // Options.Removed reports errors, and the end of the run retries
		if last {
			return
		}
		p.mu.Lock()
		p.owned--
		p.mu.Unlock()
		p.poke()
	})
}

// expect announces an attempt that will call take.
func (p *pool) expect(s *bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.due++
	p.begun++
}

// works records that an attempt has started its own sandbox successfully.
func (p *pool) works(s *bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.failing {
		s.failing = false
		p.poke()
	}
}

// take returns a waiting sandbox, or the next one to be started. It returns nil if there are none; the attempt then
// starts its own. Each call follows a call of expect.
func (p *pool) take(ctx context.Context, s *bucket) fumehood.Sandbox {
	defer p.poke()
	for {
		p.mu.Lock()
		if i := slices.IndexFunc(p.warm, func(w warm) bool { return w.bucket == s }); i >= 0 {
			w := p.warm[i]
			p.warm = slices.Delete(p.warm, i, i+1)
			s.due-- // immediately, or another would be started for this attempt
			p.mu.Unlock()
			if !p.inOrder(ctx, w) {
				p.expect(s)
				continue
			}
			p.sound(s)
			return w.sb
		}
		s.due--
		if s.starting == len(s.waiting) {
			p.mu.Unlock()
			return nil
		}
		// The start in progress now belongs to this attempt, and the pool may begin another one.
		given := make(chan fumehood.Sandbox, 1)
		s.waiting = append(s.waiting, given)
		p.owned--
		p.mu.Unlock()
		p.poke()
		return <-given // returns soon after the end of ctx, which also cancels the start
	}
}

// sound records that a waiting sandbox passed its check.
func (p *pool) sound(s *bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.spoilt = 0
}

// inOrder reports whether a waiting sandbox can be used, and removes it if not.
func (p *pool) inOrder(ctx context.Context, w warm) bool {
	if time.Now().Before(w.until) {
		checking, cancel := context.WithTimeout(ctx, checkTimeout)
		err := w.sb.Check(checking)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			p.task.log.Warn("a sandbox that was started ahead failed its check and is removed", "task", p.task.opts.Name, "sandbox", w.sb.Info().Name, "error", err)
			p.mu.Lock()
			w.bucket.spoilt++
			p.mu.Unlock()
		}
	}
	_ = p.task.End(ctx, w.sb) // Options.Removed reports errors, and the end of the run retries
	return false
}
