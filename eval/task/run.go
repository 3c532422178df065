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

// DefaultRetries is the default number of retries of an attempt after a failure of class Infra.
const DefaultRetries = 2

// DefaultOutputCap is how many bytes of each output a StepResult keeps by default.
const DefaultOutputCap = 16 << 10

// RunOptions are the options of Run. Solve is required; the other fields may be zero.
type RunOptions struct {
	// Epochs is how often each sample is attempted. 0 means once.
	Epochs int
	// MaxSandboxes is the maximum number of concurrent sandboxes, including those started ahead and those of
	// Attempt.Beside, but not kept ones. 0 means two for each core of the machine that runs them, divided by the
	// largest CPU limit of a sandbox if that is above one core. It is reduced to the number of sandboxes with the
	// largest memory limit that fit into three quarters of the memory. If samples have Others, it is at least 2.
	MaxSandboxes int
	// MaxStarting is the maximum number of sandboxes that start concurrently. 0 means one for each core of this
	// machine, and at least two.
	MaxStarting int
	// Ahead is the maximum number of sandboxes started before there is an attempt for them. Each is used once,
	// within a few minutes, after a successful check, for a sample whose spec differs only in the sample's name.
	// Sandboxes that publish a fixed host port, and kept ones, are not started ahead. 0 means a quarter of
	// MaxSandboxes, a negative value none.
	Ahead int
	// Retries is how often an attempt is retried, each time in a new sandbox, after a failure of class Infra. 0
	// means DefaultRetries, a negative value never.
	Retries int
	// Timeout limits the total time of solving and scoring in each try. An attempt that exceeds it scores 0. The
	// zero value means no limit.
	Timeout time.Duration
	// Shuffle is the seed for a random order of attempts. Nil means task order: all samples of the first epoch,
	// then those of the second.
	Shuffle *uint64
	// FailFast starts no more attempts after the first failure or score below 1. Attempts in progress are finished.
	FailFast bool
	// Done reports whether an attempt can be skipped. Nil skips none.
	Done func(Key) bool
	// Solve does the work. Like Score, it is called from several goroutines concurrently.
	Solve Solver
	// Score is called if the solver returns no error. Nil scores 1 if the last step succeeded, else 0.
	Score Scorer
	// OutputCap is how many bytes of each output a StepResult keeps. 0 means DefaultOutputCap.
	OutputCap int64
	// Progress is called on each change, from several goroutines but never concurrently. It should return soon,
	// because attempts wait for it. Nil disables progress reports.
	Progress func(Progress)
}

// Progress counts the attempts of a run by state.
type Progress struct {
	Total    int // attempts to be made
	Queued   int // not started
	Starting int // waiting for a sandbox or for its setup
	Running  int // being solved, scored or cleaned up
	Passed   int // with a score of 1
	Failed   int // with a score below 1
	Errors   int // without a score
}

// Run initializes a task and attempts each of its samples in each epoch in a new sandbox, many concurrently. It
// yields the results in the order in which attempts end. A failure of one attempt is in its result. The last
// element may be an error of the whole run: an invalid task or options (ErrConfig), the end of ctx (ErrCanceled),
// a failed removal.
//
// The score is 0 if a step is Lost because of code in the sandbox (Result.CausedInside), if Solve or Score returns
// an ErrBroken or the error of a sandbox without free processes, or if the time limit expires. Any other lost step makes the attempt a failure of class Infra: how
// the program would have ended is not known, so it cannot be scored.
//
// When ctx ends, no more attempts are started, and those in progress are ended and yielded as Canceled. When the
// loop is left early, they are ended without a result. When Run returns, it has removed all its sandboxes, unless
// the task keeps them.
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

// run is a run in progress.
type run struct {
	task     *Task
	how      RunOptions
	room     *semaphore.Weighted // for all sandboxes except those of the pool
	attempts int                 // maximum number of concurrent attempts
	pool     *pool
	starts   chan struct{} // holds one element for each start in progress

	mu       sync.Mutex
	jobs     []job // not started
	stopped  bool  // no more jobs are started
	progress Progress
}

// job is an attempt to make.
type job struct {
	sample *Sample
	epoch  int
	bucket *bucket // for sandboxes started ahead; nil if there are never any
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
		return nil, opError(ctx, "run task "+opts.Name, err)
	}
	room := how.MaxSandboxes - how.Ahead
	r := &run{
		task: t, how: how, room: semaphore.NewWeighted(int64(room)), attempts: room - t.others(), starts: make(chan struct{}, how.MaxStarting),
	}
	r.pool = newPool(t, how.Ahead, r.launch, r.upcoming)
	if err := r.plan(); err != nil {
		return nil, opError(ctx, "run task "+opts.Name, err)
	}
	return r, nil
}

// maxAttempts is the maximum number of attempts of a run.
const maxAttempts = 1_000_000

// check validates the options of a run with that number of samples.
func (o *RunOptions) check(samples int) error {
	switch {
	case samples > 0 && max(o.Epochs, 1) > maxAttempts/samples:
		return fmt.Errorf("%d epochs of %d samples are too many: %d attempts at most", max(o.Epochs, 1), samples, maxAttempts)
	case o.Solve == nil:
		return errors.New("RunOptions.Solve is not set")
	case o.Epochs < 0, o.MaxSandboxes < 0, o.MaxStarting < 0, o.Timeout < 0, o.OutputCap < 0:
		return fmt.Errorf("negative option: %d epochs, %d sandboxes, %d starting, timeout %v, output cap %d",
			o.Epochs, o.MaxSandboxes, o.MaxStarting, o.Timeout, o.OutputCap)
	}
	return nil
}

// plan lists the jobs in order.
func (r *run) plan() error {
	samples := r.task.opts.Samples
	buckets := make([]*bucket, len(samples))
	for i := range samples {
		spec, err := r.task.spec(&samples[i], 1)
		if err != nil {
			return fmt.Errorf("sample %q: %w", samples[i].ID, err)
		}
		buckets[i] = r.pool.bucketOf(spec)
	}
	for epoch := 1; epoch <= r.how.Epochs; epoch++ {
		for i := range samples {
			r.jobs = append(r.jobs, job{&samples[i], epoch, buckets[i]})
		}
	}
	if seed := r.how.Shuffle; seed != nil {
		rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(r.jobs), func(i, j int) { r.jobs[i], r.jobs[j] = r.jobs[j], r.jobs[i] })
	}
	if done := r.how.Done; done != nil { // the remaining jobs keep their order
		r.jobs = slices.DeleteFunc(r.jobs, func(j job) bool { return done(Key{j.sample.ID, j.epoch}) })
	}
	r.progress.Total, r.progress.Queued = len(r.jobs), len(r.jobs)
	return nil
}

// errLeft cancels the attempts of a run when the loop over its results is left.
var errLeft = errors.New("the loop over the results was left")

// all runs the attempts.
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
	go r.pool.maintain(ctx)
	finish := sync.OnceValue(func() error {
		cancel(errLeft)
		for range results {
		}
		<-ended
		<-r.pool.ended
		return r.task.Close(ctx)
	})
	defer func() { _ = finish() }() // also if the loop's body panics or exits its goroutine
	canceled := false
	for res := range results {
		canceled = canceled || res.Error != nil && res.Error.Class == Canceled
		if !yield(res, nil) {
			return
		}
	}
	err := finish()
	if outer.Err() != nil && (canceled || len(r.jobs) > 0) {
		cause := fmt.Errorf("%w, with %d attempts not started", fumehood.Cause(outer), len(r.jobs))
		err = &fumehood.Error{Op: "run task " + r.task.opts.Name, Class: fumehood.ErrCanceled, Err: errors.Join(cause, err)}
	}
	if err != nil {
		yield(SampleResult{}, err)
	}
}

// one runs the next attempt once a sandbox slot is free; false if no attempts remain.
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

// next returns the next job; false if no jobs remain.
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

// upcoming returns the buckets of the next n jobs.
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

// updateProgress changes the progress and reports it.
func (r *run) updateProgress(change func(*Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.progress)
	r.how.Progress(r.progress)
}

// count counts a result in the progress.
func (r *run) count(res *SampleResult) {
	r.updateProgress(func(p *Progress) {
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
