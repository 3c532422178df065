package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

// evaluation is an evaluation of a lease. Its events are in a file, for clients that come back.
type evaluation struct {
	l      *lease
	id     string
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each event, and closed at the end
	events  *os.File      // without a name
	ends    []int64       // of events, in the file
	about   api.Evaluation
	summary *runs.Summary // nil until the attempts have ended
}

func newEvaluation(l *lease) (*evaluation, error) {
	events, err := os.CreateTemp("", "fumehood-events-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(events.Name()); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	id := random(6)
	return &evaluation{
		l: l, id: id, ended: make(chan struct{}), changed: make(chan struct{}), events: events, about: api.Evaluation{ID: id},
	}, nil
}

// end cancels the evaluation, waits for its end and forgets it. Who still follows it gets no further events.
func (e *evaluation) end(context.Context) error {
	e.cancel()
	<-e.ended
	disown(e.l, e.l.runs, e.id)
	if err := e.events.Close(); !errors.Is(err, os.ErrClosed) { // by another request
		return err
	}
	return nil
}

func (e *evaluation) describe() *api.Evaluation {
	e.mu.Lock()
	defer e.mu.Unlock()
	about := e.about
	return &about
}

// add appends an event.
func (e *evaluation) add(ev api.EvalEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addLocked(ev)
}

// addLocked is add for callers that have the lock.
func (e *evaluation) addLocked(ev api.EvalEvent) error {
	line, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	at := e.offset(len(e.ends))
	if _, err := e.events.WriteAt(line, at); err != nil {
		return err
	}
	e.ends = append(e.ends, at+int64(len(line)))
	close(e.changed)
	e.changed = make(chan struct{})
	return nil
}

// finish adds the last event: the end or, if there is a failure, an error. The run's folder is closed by then, so that the run
// can be resumed at once.
func (e *evaluation) finish(failure error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := api.EvalEvent{Event: api.EvalEnd, Summary: e.summary}
	if failure != nil {
		last.Event, last.Error = api.EventError, new(errorOf(failure))
	}
	e.about.Error, e.about.Ended = last.Error, true
	err := e.addLocked(last)
	close(e.changed)
	return err
}

// offset returns where an event begins. The caller has the lock.
func (e *evaluation) offset(n int) int64 {
	if n == 0 {
		return 0
	}
	return e.ends[n-1]
}

// event returns an event by its number, and waits for it. It returns nil after the last one.
func (e *evaluation) event(ctx context.Context, n int) json.RawMessage {
	for {
		e.mu.Lock()
		if n < len(e.ends) {
			line := make(json.RawMessage, e.ends[n]-e.offset(n))
			_, err := e.events.ReadAt(line, e.offset(n))
			e.mu.Unlock()
			if err != nil {
				return nil // the client sees that there was no last event
			}
			return line
		}
		changed, ended := e.changed, e.about.Ended
		e.mu.Unlock()
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// checkEvaluation returns an error for an evaluation that the client may not start. It sets the task of one that is resumed by
// its run alone.
func (s *Server) checkEvaluation(o *api.EvaluationOptions) error {
	permit := &s.opts.Permit
	if err := permit.checkPaths([]string{o.Resume}); err != nil {
		return err
	}
	if o.Task == "" && o.Resume != "" {
		if err := resumeAsBefore(o); err != nil {
			return err
		}
	}
	switch {
	case (o.Runs == "") == (o.Resume == ""):
		return bad("exactly one of runs and resume is required")
	case o.Task == "":
		return bad("a task is required")
	case o.Resume != "" && o.Name != "":
		return bad("a resumed run has its name already")
	case o.Resume == "" && (o.RetryFailed || o.RetryErrors != nil):
		return bad("retry_errors and retry_failed need resume")
	case o.AllowUnsafe && !permit.Unsafe:
		return unauthorizedError(flagUnsafe, "start the server with --allow-unsafe", "allow_unsafe is not allowed")
	}
	paths := append([]string{o.Runs, o.Task}, o.AllowRead...)
	if o.Name != "" {
		paths = append(paths, filepath.Join(o.Runs, o.Name))
	}
	if info, err := os.Stat(o.Task); err != nil || !info.IsDir() { // a task may read everything in its file's folder
		paths = append(paths, filepath.Dir(o.Task))
	}
	return permit.checkPaths(paths)
}

// evaluate starts an evaluation for a lease.
func (s *Server) evaluate(l *lease, o *api.EvaluationOptions) (*evaluation, error) {
	if err := s.checkEvaluation(o); err != nil {
		return nil, err
	}
	return own(l, l.runs, func() (string, *evaluation, error) {
		e, err := newEvaluation(l)
		if err != nil {
			return "", nil, err
		}
		ctx, cancel := context.WithCancel(l.life)
		e.cancel = cancel
		go func() {
			defer close(e.ended)
			defer cancel()
			_, err := eval.Run(ctx, o.Task, s.evalOptions(e, o))
			if err := e.finish(err); err != nil {
				s.opts.Logger.Warn("the end of an evaluation was not recorded", "evaluation", e.id, "error", err)
			}
		}()
		return e.id, e, nil
	})
}

// resumeAsBefore sets the task of a run that is resumed, and its samples, to those that the run records.
func resumeAsBefore(o *api.EvaluationOptions) error {
	if len(o.Samples) > 0 || o.Limit > 0 || o.Epochs > 0 {
		return bad("samples, limit and epochs of a resumed run are those that it was started with: leave them out, or name the task too")
	}
	f, err := runs.Read(o.Resume)
	if err != nil {
		return err
	}
	about := f.About()
	if about.File == "" {
		return &fumehood.Error{
			Op: "resume", Path: o.Resume, Class: fumehood.ErrConfig, Err: errors.New("the run does not record its task file"),
			Hint: "name the task, and the same samples, limit and epochs as before",
		}
	}
	o.Task, o.Samples, o.Limit, o.Epochs = about.File, about.Samples, about.Limit, about.Epochs
	if !filepath.IsAbs(o.Task) {
		o.Task = filepath.Join(o.Resume, o.Task)
	}
	return nil
}

// evalOptions returns the options of an evaluation, which adds its events to e.
func (s *Server) evalOptions(e *evaluation, o *api.EvaluationOptions) eval.Options {
	dir := ""
	if o.Name != "" {
		dir = filepath.Join(o.Runs, o.Name)
	}
	var repeated atomic.Int64
	repeats := eval.RepeatAttempts(o.RetryErrors == nil || *o.RetryErrors, o.RetryFailed)
	return eval.Options{
		Open: func(ctx context.Context, name string) (fumehood.Provider, error) {
			if err := s.serves(name); err != nil {
				return nil, err
			}
			return s.providerFor(ctx, e.l, nil)
		},
		AllowLocal: s.opts.Local, AllowRead: o.AllowRead, AllowUnsafe: o.AllowUnsafe,
		Runs: o.Runs, Dir: dir, Resume: o.Resume, Samples: o.Samples, Limit: o.Limit, Epochs: o.Epochs, Shuffle: o.Shuffle,
		Repeat: func(r *task.SampleResult) bool {
			again := repeats(r)
			if again {
				repeated.Add(1)
			}
			return again
		},
		MaxSandboxes: o.MaxSandboxes, MaxStarting: o.MaxStarting, Retries: o.Retries, FailFast: o.FailFast, Logger: s.opts.Logger,
		Building: func(image, step string) {
			_ = e.add(api.EvalEvent{Event: api.EvalBuilding, EvalStep: &api.EvalStep{Image: image, Step: step}}) // the next result fails too
		},
		Began: func(r *runs.Folder) error {
			started, err := api.EvalStartedOf(r)
			if err != nil {
				return err
			}
			started.Repeated = int(repeated.Load())
			e.mu.Lock()
			e.about.Run = r.Dir()
			e.mu.Unlock()
			return e.add(api.EvalEvent{Event: api.EvalStart, EvalStarted: started})
		},
		Progress: func(p task.Progress) {
			_ = e.add(api.EvalEvent{Event: api.EvalProgress, EvalCounts: api.EvalCountsOf(p)}) // the next result fails too
		},
		Recorded: func(r *task.SampleResult) error { return e.add(api.EvalEvent{Event: api.EvalResult, Result: r}) },
		Ended: func(r *eval.Report) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.summary = &r.Summary; r.Dir == "" { // it had no results, and was removed
				e.about.Run, e.summary = "", nil
			}
			return nil
		},
	}
}

// Evaluated is the input of requests about an evaluation.
type Evaluated struct {
	Leased
	Evaluation string `path:"evaluation" maxLength:"100" doc:"the evaluation's id"`
}

func (i Evaluated) find(_ context.Context, l *lease) (*evaluation, error) {
	return lookup(&l.mu, l.runs, "evaluation", i.Evaluation)
}

// registerEvaluations adds the operations of package eval.
func (s *Server) registerEvaluations() {
	const all, one = "/v1/evaluations", "/v1/evaluations/{evaluation}"
	register(s, op{http.MethodPost, all, "start-evaluation", "Start an evaluation. It is canceled when the lease ends, and can be resumed", "Evaluations"}, withLease(func(ctx context.Context, l *lease, in *struct {
		Keyed
		Body api.EvaluationOptions
	},
	) (*output[*api.Evaluation], error) {
		return startOnce(ctx, l, in.Key, in.RawBody, func(context.Context) (*evaluation, error) {
			return s.evaluate(l, &in.Body) //nolint:contextcheck // it outlives the request
		})
	}))
	type evaluationList struct {
		Evaluations []*api.Evaluation `json:"evaluations"`
	}
	register(s, op{http.MethodGet, all, "list-evaluations", "List the lease's evaluations", "Evaluations"}, withLease(func(_ context.Context, l *lease, _ *Leased) (*output[evaluationList], error) {
		return &output[evaluationList]{evaluationList{list(l, l.runs)}}, nil
	}))
	register(s, op{http.MethodGet, one, "get-evaluation", "Describe an evaluation", "Evaluations"}, describing[Evaluated]())
	registerStream(s, op{http.MethodGet, one + "/events", "follow-evaluation", "Follow the events of an evaluation, from one on, to its end. Each line is an event", "Evaluations"}, typeLines, api.EvalEvent{}, on(func(ctx context.Context, l *lease, e *evaluation, in *struct {
		Evaluated
		From int `query:"from" minimum:"0" doc:"number of events to skip; heartbeats are not counted"`
	},
	) (*huma.StreamResponse, error) {
		return follow(ctx, l.life, api.EvalEvent{Event: api.EventHeartbeat}, func(ctx context.Context, send func(any)) {
			for n := in.From; ; n++ {
				line := e.event(ctx, n)
				if line == nil {
					return
				}
				send(line)
			}
		}), nil
	}))
	registerStream(s, op{http.MethodGet, one + "/results", "read-results", "Read the results that are recorded so far, also those of a resumed run. Each line is a result, or the last one an error", "Evaluations"}, typeLines, recorded{}, on(readResults))
	register(s, op{http.MethodDelete, one, "end-evaluation", "Cancel an evaluation, wait for its end and forget it. Its run's folder stays", "Evaluations"}, ending[Evaluated]())
}

// recorded is a line of results.
type recorded struct {
	Result *task.SampleResult `json:"result,omitempty"`
	Error  *api.Error         `json:"error,omitempty"`
}

func readResults(_ context.Context, _ *lease, e *evaluation, _ *Evaluated) (*huma.StreamResponse, error) {
	about := e.describe()
	if about.Run == "" {
		return nil, &fumehood.Error{Op: "read results", Class: fumehood.ErrUnavailable, Err: fmt.Errorf("no attempt of evaluation %s has begun", e.id)}
	}
	folder, err := runs.Read(about.Run)
	if err != nil {
		return nil, err
	}
	return resultLines(folder, 0), nil
}

// resultLines answers with the results of a run, without the first ones.
func resultLines(folder *runs.Folder, skip int) *huma.StreamResponse {
	return lines(func(send func(any) error) {
		n := 0
		for res, err := range folder.Results() {
			if n++; n <= skip && err == nil {
				continue
			}
			line := recorded{Result: &res}
			if err != nil {
				line = recorded{Error: new(errorOf(err))}
			}
			if send(line) != nil {
				return
			}
		}
	})
}
