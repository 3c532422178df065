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
	// checkTimeout bounds the check of one before it is handed out.
	checkTimeout = 2 * time.Second
	// spoiltMost is how many of one environment may be found out of order before no more are started ahead: there is
	// something about it that does not bear waiting.
	spoiltMost = 3
)

// pool starts sandboxes ahead of the attempts that will need them, in the order in which those will come. Each is handed
// out once. One that was handed out is the attempt's, and does not come back.
type pool struct {
	task     *Task
	ahead    int // the most that the pool has, starting and waiting
	launch   launcher
	upcoming func(n int) []*bucket // of the next attempts
	wake     chan struct{}         // something has changed
	ended    chan struct{}         // closed when run has ended, and nothing of the pool is left
	work     sync.WaitGroup        // starts and removals
	buckets  map[string]*bucket    // by environment; not changed once the run has begun

	mu     sync.Mutex
	warm   []warm // those that wait, the oldest first
	owned  int    // those that are being started or removed, and wanted by nobody
	closed bool
}

// bucket is for the sandboxes of one environment.
type bucket struct {
	spec     fumehood.Spec // of no sample yet
	starting int
	waiting  []chan fumehood.Sandbox // attempts that wait for a start under way, at most as many as there are
	due      int                     // attempts that have begun, and have not asked yet
	failing  bool                    // the last start has failed
	spoilt   int                     // how many were found out of order, since one was in order
}

// warm is a sandbox that waits.
type warm struct {
	sb     fumehood.Sandbox
	bucket *bucket
	until  time.Time
}

// launcher starts a sandbox, once it may be started.
type launcher func(ctx context.Context, op string, what fumehood.Spec) (fumehood.Sandbox, error)

func newPool(t *Task, ahead int, launch launcher, upcoming func(int) []*bucket) *pool {
	return &pool{
		task: t, ahead: ahead, launch: launch, upcoming: upcoming,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), buckets: map[string]*bucket{},
	}
}

// bucketOf is where the sandboxes of a spec are; nil where none can be started ahead. It is for all specs that are the
// same but for the sample.
func (p *pool) bucketOf(what fumehood.Spec) *bucket {
	if p.ahead == 0 || slices.ContainsFunc(what.Ports, func(port fumehood.Port) bool { return port.Host != 0 }) {
		return nil
	}
	what.Labels = maps.Clone(what.Labels)
	delete(what.Labels, LabelSample)
	delete(what.Labels, LabelEpoch)
	key := environment(what)
	s := p.buckets[key]
	if s == nil {
		s = &bucket{spec: what}
		p.buckets[key] = s
	}
	return s
}

// environment is a text that is the same for specs that are the same. Go's own syntax tells all values apart, and has
// the keys of maps in order; what a spec has by a pointer is the same only where the pointer is.
func environment(what fumehood.Spec) string {
	if what.Compose == nil {
		return fmt.Sprintf("%#v", what)
	}
	project := *what.Compose
	what.Compose = nil
	return fmt.Sprintf("%#v %#v", what, project)
}

// run keeps the buckets as they should be until ctx ends, and then removes what is there.
func (p *pool) run(ctx context.Context) {
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

// poke has run look at the buckets.
func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default: // it will
	}
}

// tend drops what is too old or not needed any more, and starts what is missing. It returns after what time the next
// sandbox is too old.
func (p *pool) tend(ctx context.Context) time.Duration {
	if p.ahead == 0 {
		return warmFor
	}
	upcoming := p.upcoming(p.ahead)
	p.mu.Lock()
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
			p.start(ctx, s)
		}
	}
	return next
}

// start begins to start a sandbox; p.mu is held.
func (p *pool) start(ctx context.Context, s *bucket) {
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

// put hands a sandbox to the attempt that waits for it, or keeps it; nil is one that could not be started.
func (p *pool) put(ctx context.Context, s *bucket, sb fumehood.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.starting--
	s.failing = sb == nil
	if len(s.waiting) > 0 { // whose slot it is, see take
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

// drop removes a sandbox that nobody has used.
func (p *pool) drop(ctx context.Context, sb fumehood.Sandbox, last bool) {
	p.work.Go(func() {
		_ = p.task.End(ctx, sb) // told by Options.Removed, and tried again at the end
		if last {
			return
		}
		p.mu.Lock()
		p.owned--
		p.mu.Unlock()
		p.poke()
	})
}

// expect announces an attempt that is about to take a sandbox.
func (p *pool) expect(s *bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.due++
}

// works tells that an attempt has started a sandbox of its own.
func (p *pool) works(s *bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.failing {
		s.failing = false
		p.poke()
	}
}

// take is a sandbox that waits, or the next one that has been started; nil where there is none, and the attempt has to
// start its own. Each was expected.
func (p *pool) take(ctx context.Context, s *bucket) fumehood.Sandbox {
	defer p.poke()
	for {
		p.mu.Lock()
		if i := slices.IndexFunc(p.warm, func(w warm) bool { return w.bucket == s }); i >= 0 {
			w := p.warm[i]
			p.warm = slices.Delete(p.warm, i, i+1)
			s.due-- // at once: else another would be started for this attempt
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
		// The start under way is this attempt's from now on, and the pool may begin another one.
		given := make(chan fumehood.Sandbox, 1)
		s.waiting = append(s.waiting, given)
		p.owned--
		p.mu.Unlock()
		p.poke()
		return <-given // soon after the end of ctx, which ends the start too
	}
}

// sound notes that a sandbox that has waited was in order.
func (p *pool) sound(s *bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.spoilt = 0
}

// inOrder says whether a sandbox that has waited can be used, and removes it where not.
func (p *pool) inOrder(ctx context.Context, w warm) bool {
	if time.Now().Before(w.until) {
		checking, cancel := context.WithTimeout(ctx, checkTimeout)
		err := w.sb.Check(checking)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			p.task.log.Warn("a sandbox that was started ahead is not in order, and goes", "task", p.task.opts.Name, "sandbox", w.sb.Info().Name, "error", err)
			p.mu.Lock()
			w.bucket.spoilt++
			p.mu.Unlock()
		}
	}
	_ = p.task.End(ctx, w.sb) // told by Options.Removed, and tried again at the end
	return false
}
