package task

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fumehood/fumehood"
)

// DefaultRetries is how often an attempt is repeated after a failure of class Infra where RunOptions do not say.
const DefaultRetries = 2

// DefaultOutputCap is how many bytes of each output a StepResult keeps where RunOptions do not say.
const DefaultOutputCap = 16 << 10

// RunOptions say how a task is run. Solve is needed; the other fields' zero values work.
type RunOptions struct {
	// Epochs is how often each sample is attempted. 0 means once.
	Epochs int
	// MaxSandboxes is how many sandboxes are there at once, those that are started ahead and those of Attempt.Beside
	// included; kept ones are not counted. 0 means two for each core that they run on, or fewer where their limits of
	// processors or memory would add up to more than there is, of memory to more than three quarters of it. Where samples
	// have Others it is 2 at least.
	MaxSandboxes int
	// MaxStarting is how many of them are being started at once. 0 means one for each of this machine's cores, and two
	// at least.
	MaxStarting int
	// Ahead is how many are started, at most, before there is an attempt for them. Each is used once, within a few
	// minutes, for a sample whose sandbox is the same in all but the sample's name, and after it was found in order.
	// Those that publish a given port of the host, and kept ones, are not started ahead. 0 means a quarter of
	// MaxSandboxes, negative none.
	Ahead int
	// Retries is how often an attempt is repeated, each time in a new sandbox, after a failure of class Infra. 0 means
	// DefaultRetries, negative never.
	Retries int
	// Timeout bounds solving and scoring, together, in each try: who takes longer has a score of 0. 0 means no limit.
	Timeout time.Duration
	// Shuffle is the seed of the order of attempts. Nil means all samples of the first epoch as the task has them, then
	// those of the second.
	Shuffle *uint64
	// FailFast begins no more attempts after the first failure, or score below 1. Those under way are finished.
	FailFast bool
	// Done tells of attempts that need not be made. Nil means that all are made.
	Done func(Key) bool
	// Solve does the work. It is called from several goroutines at once, as Score is.
	Solve Solver
	// Score is called after a solver without an error. Nil gives 1 where the last step has succeeded, else 0.
	Score Scorer
	// OutputCap is how many bytes of each output a StepResult keeps. 0 means DefaultOutputCap.
	OutputCap int64
	// Progress is told of each change, from several goroutines but never from two at once. It should return soon, for
	// the attempts wait for it. Nil tells nobody.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Total    int // attempts that are to be made
	Queued   int // not begun
	Starting int // waiting for their sandbox, or for its set-up
	Running  int // being solved, scored or cleaned up after
	Passed   int // with a score of 1
	Failed   int // with a score below 1
	Errors   int // without a score
}

// Run initialises a task, attempts each of its samples in each epoch in a fresh sandbox, many at a time, and yields what
// becomes of each, in the order in which they end. Trouble with one attempt is in its result. The sequence's own error
// comes last: a task or options that are wrong (ErrConfig), an end of ctx (ErrCancelled), what could not be removed.
//
// A step whose outcome is Lost by what was done in the sandbox (Result.CausedInside) makes the score 0; so does an error of Solve or
// Score that is an ErrBroken, and a limit of time that is over. Any other loss makes the attempt a failure of class Infra:
// how the program would have ended is not known, and nothing can be scored.
//
// When ctx ends, no more attempts are begun; those under way are ended, and yielded as Cancelled. When the loop is left
// early they are ended too, and nothing is told of them. In any case Run has removed all its sandboxes when it returns,
// unless the task keeps them.
func Run(ctx context.Context, opts Options, how RunOptions) iter.Seq2[SampleResult, error] {
	return func(yield func(SampleResult, error) bool) {
		r, err := newRun(ctx, opts, how)
		if err != nil {
			yield(SampleResult{}, err)
			return
		}
		r.all(ctx, yield)
	}
}

// run is a run under way.
type run struct {
	task     *Task
	how      RunOptions
	room     *semaphore.Weighted // of all sandboxes but those of the pool
	attempts int                 // at once
	pool     *pool
	starts   chan struct{} // a slot for each start under way

	mu       sync.Mutex
	jobs     []job // that were not begun
	stopped  bool  // no more are begun
	progress Progress
}

// job is an attempt to be made.
type job struct {
	sample *Sample
	epoch  int
	bucket *bucket // where there may be a sandbox for it; nil where there never is
}

func newRun(ctx context.Context, opts Options, how RunOptions) (*run, error) {
	if err := how.check(len(opts.Samples)); err != nil {
		return nil, &fumehood.Error{Op: "run task " + opts.Name, Class: fumehood.ErrConfig, Err: err}
	}
	t, err := Init(ctx, opts)
	if err != nil {
		return nil, err
	}
	how.Epochs = max(how.Epochs, 1)
	if how.Retries == 0 {
		how.Retries = DefaultRetries
	}
	if how.OutputCap == 0 {
		how.OutputCap = DefaultOutputCap
	}
	if how.Score == nil {
		how.Score = lastStepSucceeds
	}
	if how.Progress == nil {
		how.Progress = func(Progress) {}
	}
	if err := t.size(ctx, &how); err != nil {
		return nil, failed(ctx, "run task "+opts.Name, err)
	}
	room := how.MaxSandboxes - how.Ahead
	r := &run{
		task: t, how: how, room: semaphore.NewWeighted(int64(room)), attempts: room - t.others(), starts: make(chan struct{}, how.MaxStarting),
	}
	r.pool = newPool(t, how.Ahead, r.launch, r.upcoming)
	if err := r.plan(); err != nil {
		return nil, failed(ctx, "run task "+opts.Name, err)
	}
	return r, nil
}

// maxAttempts bounds the attempts of a run.
const maxAttempts = 1_000_000

// check finds what is wrong with the options of a run of so many samples.
func (o *RunOptions) check(samples int) error {
	switch {
	case samples > 0 && max(o.Epochs, 1) > maxAttempts/samples:
		return fmt.Errorf("%d epochs of %d samples are too many: %d attempts at most", max(o.Epochs, 1), samples, maxAttempts)
	case o.Solve == nil:
		return errors.New("there is no solver")
	case o.Epochs < 0, o.MaxSandboxes < 0, o.MaxStarting < 0, o.Timeout < 0, o.OutputCap < 0:
		return fmt.Errorf("one of %d epochs, %d sandboxes, %d at a start, the limit %v and the output cap %d is negative",
			o.Epochs, o.MaxSandboxes, o.MaxStarting, o.Timeout, o.OutputCap)
	}
	return nil
}

// plan lists the jobs in their order.
func (r *run) plan() error {
	samples := r.task.opts.Samples
	buckets := make([]*bucket, len(samples))
	for i := range samples {
		what, err := r.task.spec(&samples[i], 1)
		if err != nil {
			return fmt.Errorf("sample %q: %w", samples[i].ID, err)
		}
		buckets[i] = r.pool.bucketOf(what)
	}
	for epoch := 1; epoch <= r.how.Epochs; epoch++ {
		for i := range samples {
			r.jobs = append(r.jobs, job{&samples[i], epoch, buckets[i]})
		}
	}
	if seed := r.how.Shuffle; seed != nil {
		rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(r.jobs), func(i, j int) { r.jobs[i], r.jobs[j] = r.jobs[j], r.jobs[i] })
	}
	if done := r.how.Done; done != nil { // what is left has the order that it would have had
		r.jobs = slices.DeleteFunc(r.jobs, func(j job) bool { return done(Key{j.sample.ID, j.epoch}) })
	}
	r.progress.Total, r.progress.Queued = len(r.jobs), len(r.jobs)
	return nil
}

// errLeft ends the attempts of a run whose results nobody wants.
var errLeft = errors.New("the loop over the results was left")

// all makes the attempts.
func (r *run) all(outer context.Context, yield func(SampleResult, error) bool) {
	ctx, cancel := context.WithCancelCause(outer)
	results := make(chan SampleResult)
	var workers sync.WaitGroup
	for range min(r.attempts, len(r.jobs)) {
		workers.Go(func() {
			for {
				res, ok := r.one(ctx)
				if !ok {
					return
				}
				results <- res
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		workers.Wait()
		close(results)
	}()
	go r.pool.run(ctx)
	finish := sync.OnceValue(func() error {
		cancel(errLeft)
		for range results {
		}
		<-ended
		<-r.pool.ended
		return r.task.Close(ctx)
	})
	defer func() { _ = finish() }() // also when the loop's body panics, or ends its goroutine
	cancelled := false
	for res := range results {
		cancelled = cancelled || res.Error != nil && res.Error.Class == Cancelled
		if !yield(res, nil) {
			return
		}
	}
	err := finish()
	if outer.Err() != nil && (cancelled || len(r.jobs) > 0) {
		cause := fmt.Errorf("%w, with %d attempts not begun", fumehood.Ended(outer), len(r.jobs))
		err = &fumehood.Error{Op: "run task " + r.task.opts.Name, Class: fumehood.ErrCancelled, Err: errors.Join(cause, err)}
	}
	if err != nil {
		yield(SampleResult{}, err)
	}
}

// one makes the next attempt, once there is room for it; false where there is none.
func (r *run) one(ctx context.Context) (SampleResult, bool) {
	if r.room.Acquire(ctx, 1) != nil {
		return SampleResult{}, false
	}
	defer r.room.Release(1)
	j, ok := r.next(ctx)
	if !ok {
		return SampleResult{}, false
	}
	return r.attempt(ctx, j), true
}

// next is the job to be done now; false where there is none.
func (r *run) next(ctx context.Context) (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.jobs) == 0 || r.stopped || ctx.Err() != nil {
		return job{}, false
	}
	j := r.jobs[0]
	r.jobs = r.jobs[1:]
	r.expect(j)
	r.progress.Queued--
	r.progress.Starting++
	r.how.Progress(r.progress)
	return j, true
}

func (r *run) expect(j job) {
	if j.bucket != nil {
		r.pool.expect(j.bucket)
	}
}

// upcoming are the buckets of the next n jobs.
func (r *run) upcoming(n int) []*bucket {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	var all []*bucket
	for _, j := range r.jobs[:min(n, len(r.jobs))] {
		if j.bucket != nil {
			all = append(all, j.bucket)
		}
	}
	return all
}

// told changes the progress and tells it.
func (r *run) told(change func(*Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.progress)
	r.how.Progress(r.progress)
}

// count counts a result.
func (r *run) count(res *SampleResult) {
	r.told(func(p *Progress) {
		p.Running--
		switch {
		case res.Error != nil:
			p.Errors++
		case res.Score.Passed():
			p.Passed++
		default:
			p.Failed++
		}
		if r.how.FailFast && (res.Error != nil || !res.Score.Passed()) {
			r.stopped = true
		}
	})
}
