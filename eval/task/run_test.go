package task_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/fake"
)

// yard is a provider in memory that counts its sandboxes.
type yard struct {
	fumehood.Provider
	takes time.Duration                                        // a start
	fail  func(n int, spec fumehood.Spec) error                // the nth start, from 1; nil means that no start fails
	after func(n int, spec fumehood.Spec, sb fumehood.Sandbox) // called for each start; may be nil
	mu    sync.Mutex
	names []string // names of started sandboxes

	starting, alive, mostStarting, mostAlive int
}

func newYard() *yard {
	return &yard{Provider: fake.New(fake.Options{Programs: map[string]fake.Program{
		"echo": func(_ context.Context, p *fake.Proc) int {
			fmt.Fprintln(p.Stdout, strings.Join(p.Args[1:], " "))
			return 0
		},
		"false": func(context.Context, *fake.Proc) int { return 1 },
		"hangs": func(ctx context.Context, _ *fake.Proc) int {
			<-ctx.Done()
			return 0
		},
		"sh": shell,
	}})}
}

func (y *yard) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	y.mu.Lock()
	y.names = append(y.names, spec.Name)
	n := len(y.names)
	y.starting++
	y.alive++
	y.mostStarting, y.mostAlive = max(y.starting, y.mostStarting), max(y.alive, y.mostAlive)
	y.mu.Unlock()
	sb, err := y.start(ctx, n, spec)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.starting--
	if err != nil {
		y.alive--
	}
	return sb, err
}

func (y *yard) start(ctx context.Context, n int, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if y.takes > 0 {
		select {
		case <-time.After(y.takes):
		case <-ctx.Done():
			return nil, &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrCanceled, Err: context.Cause(ctx)}
		}
	}
	if y.fail != nil {
		if err := y.fail(n, spec); err != nil {
			return nil, err
		}
	}
	sb, err := y.Provider.Start(ctx, spec)
	if err == nil && y.after != nil {
		y.after(n, spec, sb)
	}
	return sb, err
}

// options returns the options of a task with n samples, whose sandboxes the yard counts.
func (y *yard) options(n int) task.Options {
	opts := task.Options{Name: "sums", Provider: y, Removed: func(r task.Removal) {
		y.mu.Lock()
		defer y.mu.Unlock()
		if r.Err == nil {
			y.alive--
		}
	}}
	for i := range n {
		opts.Samples = append(opts.Samples, task.Sample{ID: fmt.Sprint(i + 1)})
	}
	return opts
}

// gone checks that no sandbox is left.
func (y *yard) gone(t *testing.T) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.alive != 0 {
		t.Errorf("%d sandboxes are left", y.alive)
	}
}

// command returns a solver that runs one command.
func command(args ...string) task.Solver {
	return func(ctx context.Context, a *task.Attempt) error {
		cmd := fumehood.Cmd{Args: args}
		res, err := a.Sandbox.Exec(ctx, cmd)
		if err == nil {
			a.Steps = append(a.Steps, task.Step{Cmd: cmd, Result: res})
		}
		return err
	}
}

// collect runs a task to its end.
func collect(ctx context.Context, opts task.Options, how task.RunOptions) (all []task.SampleResult, err error) {
	for res, e := range task.Run(ctx, opts, how) {
		if e != nil {
			err = e
			continue
		}
		all = append(all, res)
	}
	return all, err
}

func keys(all []task.SampleResult) []string {
	var k []string
	for _, r := range all {
		k = append(k, fmt.Sprintf("%s/%d", r.Sample, r.Epoch))
	}
	return k
}

func TestRun_results(t *testing.T) {
	y := newYard()
	all, err := collect(t.Context(), y.options(7), task.RunOptions{Epochs: 3, Solve: func(ctx context.Context, a *task.Attempt) error {
		if info := a.Sandbox.Info(); task.KeyOf(info) != (task.Key{Sample: a.Sample.ID, Epoch: a.Epoch}) || info.Labels[task.LabelTask] != "sums" {
			t.Errorf("the sandbox of %s/%d has labels %+v", a.Sample.ID, a.Epoch, info.Labels)
		}
		return command("echo", a.Sample.ID, strings.Repeat("é", 10))(ctx, a)
	}, OutputCap: 4})
	if err != nil {
		t.Fatal(err)
	}
	got := keys(all)
	slices.Sort(got)
	if len(slices.Compact(got)) != 21 || len(all) != 21 {
		t.Errorf("got %q", got)
	}
	for _, r := range all {
		if !passed(r) || r.Error != nil || r.Tries != 1 || r.Sandbox == "" || len(r.Steps) != 1 || len(r.Phases) != 5 || r.Started.IsZero() {
			t.Errorf("got %+v", r)
		}
		if s := r.Steps[0]; s.Name != "1" || s.Outcome != fumehood.Exited || s.Stdout.Total != 23 || s.Stdout.Text() != "é\n" {
			t.Errorf("got %+v", s)
		}
	}
	y.gone(t)
	names := slices.Clone(y.names)
	slices.Sort(names)
	if len(slices.Compact(names)) != len(y.names) {
		t.Errorf("duplicate sandbox name: %q", y.names)
	}
}

func TestRun_defaultScore(t *testing.T) {
	y := newYard()
	all, err := collect(t.Context(), y.options(1), task.RunOptions{Solve: func(ctx context.Context, a *task.Attempt) error {
		return errors.Join(command("echo")(ctx, a), command("false")(ctx, a))
	}})
	if err != nil || len(all) != 1 || passed(all[0]) || !slices.Equal(all[0].Score.Reasons, []string{"step 2 exited with code 1"}) {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestRun_failures(t *testing.T) {
	solve := func(err error) task.RunOptions {
		return task.RunOptions{Solve: func(context.Context, *task.Attempt) error { return err }}
	}
	score := func(s task.Score, err error) task.RunOptions {
		return task.RunOptions{Solve: command("echo"), Score: func(context.Context, *task.Attempt) (task.Score, error) { return s, err }}
	}
	classed := func(class error) error { return &fumehood.Error{Op: "x", Class: class, Err: errors.New("because\xff")} }
	for name, c := range map[string]struct {
		how          task.RunOptions
		class, phase string
		tries        int
		text         string
	}{
		"a daemon that is gone":   {solve(classed(fumehood.ErrUnavailable)), task.Infra, "solve", 3, `because\xff`},
		"an error of no class":    {solve(errors.New("odd")), task.Infra, "solve", 3, "odd"},
		"a scorer that fails":     {score(task.Score{Value: 1}, classed(fumehood.ErrInfrastructure)), task.Infra, "score", 3, "because"},
		"no such program":         {task.RunOptions{Solve: command("nothing")}, task.Config, "solve", 1, "nothing"},
		"no such file":            {solve(classed(fumehood.ErrNotFound)), task.Config, "solve", 1, "because"},
		"what cannot be done":     {solve(classed(fumehood.ErrUnsupported)), task.Config, "solve", 1, "because"},
		"too large":               {solve(classed(fumehood.ErrTooLarge)), task.Limit, "solve", 1, "because"},
		"a time of the solver's":  {solve(classed(fumehood.ErrCanceled)), task.Limit, "solve", 1, "because"},
		"no step":                 {solve(nil), task.Config, "score", 1, "no step"},
		"a step without a result": {task.RunOptions{Solve: func(_ context.Context, a *task.Attempt) error { a.Steps = make([]task.Step, 1); return nil }}, task.Config, "solve", 1, "step 1"},
		"a lost program": {task.RunOptions{Solve: func(_ context.Context, a *task.Attempt) error {
			a.Steps = []task.Step{{Name: "go", Result: &fumehood.Result{Outcome: fumehood.Lost, Reason: "the guest died"}}}
			return nil
		}}, task.Infra, "solve", 3, "step go is lost: the guest died"},
		"a score above 1":      {score(task.Score{Value: 1.5}, nil), task.Config, "score", 1, "the score is 1.5"},
		"a part's name":        {score(task.Score{Parts: map[string]float64{"\xff": 1}}, nil), task.Config, "score", 1, `"\xff" is not UTF-8`},
		"a part below 0":       {score(task.Score{Parts: map[string]float64{"style": -1}}, nil), task.Config, "score", 1, `"style" is -1`},
		"a score of no number": {score(task.Score{Value: math.NaN()}, nil), task.Config, "score", 1, "NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard()
				all, err := collect(t.Context(), y.options(1), c.how)
				if err != nil || len(all) != 1 {
					t.Fatalf("%+v, %v", all, err)
				}
				r := all[0]
				if r.Score != nil || r.Error == nil || r.Error.Class != c.class || r.Error.Phase != c.phase || r.Tries != c.tries || !strings.Contains(r.Error.Text, c.text) {
					t.Errorf("got %+v, %+v", r, r.Error)
				}
				if len(y.names) != c.tries {
					t.Errorf("%d sandboxes", len(y.names))
				}
				y.gone(t)
			})
		})
	}
}

func TestRun_lossCausedInside(t *testing.T) {
	for name, besides := range map[string]error{"": nil, "and the daemon goes": &fumehood.Error{Op: "exec", Class: fumehood.ErrUnavailable, Err: errors.New("gone")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard()
				all, err := collect(t.Context(), y.options(1), task.RunOptions{
					Solve: func(_ context.Context, a *task.Attempt) error {
						a.Steps = []task.Step{
							{Name: "other", Result: &fumehood.Result{Outcome: fumehood.Lost, Reason: "not known"}},
							{Name: "go", Result: &fumehood.Result{Outcome: fumehood.Lost, CausedInside: true, Reason: "killed"}},
						}
						return besides
					},
					Score: func(context.Context, *task.Attempt) (task.Score, error) { return task.Score{Value: 1}, nil },
				})
				if err != nil || len(all) != 1 {
					t.Fatalf("%+v, %v", all, err)
				}
				r := all[0]
				if r.Error != nil || r.Score == nil || r.Score.Value != 0 || !slices.Equal(r.Score.Reasons, []string{"step go is lost: killed"}) || r.Tries != 1 || len(r.Steps) != 2 {
					t.Errorf("got %+v, %+v, %+v", r, r.Score, r.Error)
				}
				y.gone(t)
			})
		})
	}
}

func TestRun_broken(t *testing.T) {
	broken := &fumehood.Error{Op: "exec", Class: fumehood.ErrBroken, Err: errors.New("no memory\xff")}
	full := &fumehood.Error{Op: "exec", Class: fumehood.ErrLimit, Err: &provider.ProcessLimit{Text: "no memory\xff"}}
	for name, how := range map[string]task.RunOptions{
		"when solved":       {Solve: func(context.Context, *task.Attempt) error { return fmt.Errorf("step 2: %w", broken) }},
		"without processes": {Solve: func(context.Context, *task.Attempt) error { return full }},
		"when scored": {
			Solve: command("echo"), Score: func(context.Context, *task.Attempt) (task.Score, error) { return task.Score{Value: 1}, broken },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard()
				all, err := collect(t.Context(), y.options(1), how)
				if err != nil || len(all) != 1 {
					t.Fatalf("%+v, %v", all, err)
				}
				r := all[0]
				if r.Error != nil || r.Score == nil || r.Score.Value != 0 || len(r.Score.Reasons) != 1 || !strings.HasSuffix(r.Score.Reasons[0], `exec: no memory\xff`) || r.Tries != 1 {
					t.Errorf("got %+v, %+v, %+v", r, r.Score, r.Error)
				}
				y.gone(t)
			})
		})
	}
}

func TestRun_retries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.fail = func(n int, _ fumehood.Spec) error {
			if n == 1 {
				return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrInfrastructure, Err: errors.New("the daemon hiccups")}
			}
			return nil
		}
		var tried []int
		all, err := collect(t.Context(), y.options(1), task.RunOptions{Ahead: -1, Retries: 5, Solve: func(ctx context.Context, a *task.Attempt) error {
			tried = append(tried, a.Try)
			if a.Try == 2 {
				return errors.New("the line was cut")
			}
			return command("echo", "done")(ctx, a)
		}})
		if err != nil || len(all) != 1 || !passed(all[0]) || all[0].Error != nil || all[0].Tries != 3 || len(all[0].Steps) != 1 || !slices.Equal(tried, []int{2, 3}) || all[0].Sandbox != y.names[2] {
			t.Errorf("%+v, %v, %v", all, err, tried)
		}
		y.gone(t)
	})
}

func TestRun_noRetries(t *testing.T) {
	y := newYard()
	y.fail = func(int, fumehood.Spec) error { return errors.New("no") }
	all, err := collect(t.Context(), y.options(2), task.RunOptions{Retries: -1, Ahead: -1, Solve: command("echo")})
	if err != nil || len(all) != 2 || all[0].Tries != 1 || all[0].Error.Phase != "start" || all[0].Sandbox != "" || len(y.names) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestRun_setupFails(t *testing.T) {
	y := newYard()
	opts := y.options(1)
	opts.Samples[0].Setup = task.Content{Text: "#!false"}
	all, err := collect(t.Context(), opts, task.RunOptions{Solve: command("echo")})
	if err != nil || all[0].Score != nil || all[0].Error.Class != task.Config || all[0].Error.Phase != "start" || all[0].Tries != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	y.gone(t)
}

func TestRun_timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		began := time.Now()
		all, err := collect(t.Context(), y.options(1), task.RunOptions{Timeout: time.Minute, Solve: command("hangs")})
		if err != nil || all[0].Score == nil || all[0].Score.Passed() || !slices.Equal(all[0].Score.Reasons, []string{"the attempt took longer than its limit of 1m0s"}) || all[0].Tries != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("it took %v", took)
		}
		y.gone(t)
	})
}

func TestRun_timeoutDaemonFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		all, err := collect(t.Context(), y.options(1), task.RunOptions{Timeout: time.Minute, Retries: 1, Solve: func(ctx context.Context, a *task.Attempt) error {
			<-ctx.Done()
			return &fumehood.Error{Op: "exec", Class: fumehood.ErrUnavailable, Err: errors.New("the daemon is gone")}
		}})
		if err != nil || len(all) != 1 || all[0].Score != nil || all[0].Error == nil || all[0].Error.Class != task.Infra || all[0].Tries != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		y.gone(t)
	})
}

func TestRun_interrupt(t *testing.T) {
	y := newYard()
	ctx, interrupt := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Add(3)
	go func() {
		running.Wait()
		interrupt()
	}()
	all, err := collect(ctx, y.options(10), task.RunOptions{MaxSandboxes: 4, Ahead: 1, Solve: func(ctx context.Context, a *task.Attempt) error {
		running.Done()
		return command("hangs")(ctx, a)
	}})
	if !errors.Is(err, fumehood.ErrCanceled) || !strings.Contains(err.Error(), "7 attempts not started") {
		t.Errorf("got %v", err)
	}
	if len(all) != 3 {
		t.Fatalf("got %q", keys(all))
	}
	for _, r := range all {
		if r.Score != nil || r.Error == nil || r.Error.Class != task.Canceled || r.Error.Phase != "solve" {
			t.Errorf("got %+v", r)
		}
	}
	y.gone(t)
}

func TestRun_failsAtEnd(t *testing.T) {
	y := newYard()
	ctx, interrupt := context.WithCancel(t.Context())
	all, err := collect(ctx, y.options(1), task.RunOptions{Solve: func(context.Context, *task.Attempt) error {
		interrupt()
		return errors.New("the daemon is gone")
	}})
	if !errors.Is(err, fumehood.ErrCanceled) || len(all) != 1 || all[0].Error.Class != task.Canceled {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestRun_lateInterrupt(t *testing.T) {
	y := newYard()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	for res, err := range task.Run(ctx, y.options(1), task.RunOptions{Solve: command("echo")}) {
		interrupt()
		if err != nil || !passed(res) {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

func TestRun_leaveLoop(t *testing.T) {
	y := newYard()
	for res, err := range task.Run(t.Context(), y.options(50), task.RunOptions{MaxSandboxes: 8, Solve: func(ctx context.Context, a *task.Attempt) error {
		if a.Sample.ID == "1" {
			return command("echo")(ctx, a)
		}
		return command("hangs")(ctx, a)
	}}) {
		if err != nil || res.Sample != "1" {
			t.Errorf("%+v, %v", res, err)
		}
		break
	}
	y.gone(t)
}

func TestRun_panicInLoop(t *testing.T) {
	y := newYard()
	func() {
		defer func() {
			if recover() != "oh" {
				t.Error("the panic did not propagate")
			}
		}()
		for _, err := range task.Run(t.Context(), y.options(50), task.RunOptions{MaxSandboxes: 8, Solve: command("echo")}) {
			if err != nil {
				t.Error(err)
			}
			panic("oh")
		}
	}()
	y.gone(t)
}

func TestRun_failFast(t *testing.T) {
	y := newYard()
	all, err := collect(t.Context(), y.options(100), task.RunOptions{MaxSandboxes: 1, FailFast: true, Solve: func(ctx context.Context, a *task.Attempt) error {
		if a.Sample.ID == "3" {
			return command("false")(ctx, a)
		}
		return command("echo")(ctx, a)
	}})
	if err != nil || !slices.Equal(keys(all), []string{"1/1", "2/1", "3/1"}) {
		t.Errorf("%q, %v", keys(all), err)
	}
	y.gone(t)
}

func TestRun_shuffle(t *testing.T) {
	order := func(seed *uint64, done ...string) []string {
		all, err := collect(t.Context(), newYard().options(20), task.RunOptions{MaxSandboxes: 1, Epochs: 2, Shuffle: seed, Solve: command("echo"), Done: func(k task.Key) bool {
			return slices.Contains(done, fmt.Sprintf("%s/%d", k.Sample, k.Epoch))
		}})
		if err != nil {
			t.Fatal(err)
		}
		return keys(all)
	}
	one, two := uint64(1), uint64(2)
	plain := order(nil)
	if plain[0] != "1/1" || plain[19] != "20/1" || plain[20] != "1/2" {
		t.Errorf("got %q", plain)
	}
	if a, b := order(&one), order(&one); !slices.Equal(a, b) || slices.Equal(a, order(&two)) || slices.Equal(a, plain) {
		t.Errorf("got %q and %q", a, b)
	}
	if a := order(&one); !slices.Equal(order(&one, a[:15]...), a[15:]) {
		t.Error("the remaining attempts have another order")
	}
}

func TestRun_done(t *testing.T) {
	all, err := collect(t.Context(), newYard().options(3), task.RunOptions{Epochs: 2, MaxSandboxes: 1, Solve: command("echo"), Done: func(k task.Key) bool {
		return k.Sample == "2" || k == task.Key{Sample: "1", Epoch: 2}
	}})
	if err != nil || !slices.Equal(keys(all), []string{"1/1", "3/1", "3/2"}) {
		t.Errorf("%q, %v", keys(all), err)
	}
}

func TestRun_allDone(t *testing.T) {
	y := newYard()
	all, err := collect(t.Context(), y.options(3), task.RunOptions{Solve: command("echo"), Done: func(task.Key) bool { return true }})
	if err != nil || len(all) > 0 || len(y.names) > 0 {
		t.Errorf("%q, %d starts, %v", keys(all), len(y.names), err)
	}
}

func TestRun_invalidOptions(t *testing.T) {
	for name, how := range map[string]task.RunOptions{
		"no solver": {}, "epochs": {Solve: command("echo"), Epochs: -1}, "cap": {Solve: command("echo"), OutputCap: -1},
		"more epochs than can be": {Solve: command("echo"), Epochs: 999_999_999},
	} {
		if all, err := collect(t.Context(), newYard().options(1), how); !errors.Is(err, fumehood.ErrConfig) || len(all) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := collect(t.Context(), newYard().options(0), task.RunOptions{Solve: command("echo")}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

func TestRun_progress(t *testing.T) {
	y := newYard()
	var last task.Progress
	changes := 0
	_, err := collect(t.Context(), y.options(9), task.RunOptions{MaxSandboxes: 4, Retries: -1, Solve: func(ctx context.Context, a *task.Attempt) error {
		switch a.Sample.ID {
		case "1", "2":
			return command("false")(ctx, a)
		case "3":
			return errors.New("no")
		}
		return command("echo")(ctx, a)
	}, Progress: func(p task.Progress) {
		changes++
		last = p
		if p.Queued+p.Starting+p.Running+p.Passed+p.Failed+p.Errors != p.Total || min(p.Queued, p.Starting, p.Running) < 0 || p.Starting+p.Running > 3 {
			t.Errorf("got %+v", p)
		}
	}})
	if err != nil || last != (task.Progress{Total: 9, Passed: 6, Failed: 2, Errors: 1}) || changes != 27 {
		t.Errorf("%+v after %d changes, %v", last, changes, err)
	}
}

func TestRun_maxSandboxes(t *testing.T) {
	for _, ahead := range []int{-1, 0, 3, 100} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard()
				y.takes = time.Second
				y.fail = func(n int, _ fumehood.Spec) error {
					if n%7 == 0 {
						return errors.New("not now")
					}
					return nil
				}
				opts := y.options(40)
				removed := opts.Removed
				opts.Removed = func(r task.Removal) {
					<-time.After(300 * time.Millisecond)
					removed(r)
				}
				for i := range opts.Samples { // several kinds, in groups of three
					opts.Samples[i].Spec = &fumehood.Spec{Env: map[string]string{"KIND": fmt.Sprint(i / 3 % 4)}}
				}
				all, err := collect(t.Context(), opts, task.RunOptions{MaxSandboxes: 8, MaxStarting: 7, Ahead: ahead, Solve: func(ctx context.Context, a *task.Attempt) error {
					<-time.After(700 * time.Millisecond)
					return command("echo")(ctx, a)
				}})
				if err != nil || len(all) != 40 {
					t.Fatalf("%d results, %v", len(all), err)
				}
				if y.mostAlive > 8 || y.mostStarting > 7 {
					t.Errorf("%d at once, %d starting", y.mostAlive, y.mostStarting)
				}
				y.gone(t)
			})
		})
	}
}

func TestRun_removalFails(t *testing.T) {
	y := newYard()
	y.after = func(_ int, _ fumehood.Spec, _ fumehood.Sandbox) {}
	opts := y.options(1)
	opts.Provider = unremovable{y}
	all, err := collect(t.Context(), opts, task.RunOptions{Ahead: -1, Solve: command("echo")})
	if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "it will not go") || len(all) != 1 || !passed(all[0]) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := y.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// unremovable is a provider whose sandboxes cannot be removed.
type unremovable struct{ *yard }

func (s unremovable) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	sb, err := s.yard.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return provider.New(stays{sb}, spec, nil), nil
}

type stays struct{ sb fumehood.Sandbox }

func (s stays) Info() fumehood.Info                    { return s.sb.Info() }
func (s stays) Service(string) provider.ServiceBackend { return oneCommand(s) }
func (s stays) Close(context.Context) error            { return errors.New("it will not go") }

// oneCommand is a service in which every command succeeds.
type oneCommand struct{ sb fumehood.Sandbox }

func (oneCommand) Files(string) provider.FileBackend { return nil }
func (oneCommand) Start(context.Context, fumehood.Cmd, bool, provider.Sink) (provider.ProcessBackend, error) {
	return succeeds{}, nil
}

type succeeds struct{}

func (succeeds) Wait(context.Context) (provider.Exit, error) {
	return provider.Exit{Outcome: fumehood.Exited}, nil
}
func (succeeds) Write(p []byte) (int, error)                  { return len(p), nil }
func (succeeds) CloseStdin() error                            { return nil }
func (succeeds) Signal(context.Context, int) error            { return nil }
func (succeeds) Kill(context.Context) bool                    { return true }
func (succeeds) Resize(context.Context, uint16, uint16) error { return nil }

func TestRun_memory(t *testing.T) {
	const samples, output, most = 1000, 256 << 10, 32 << 20
	y := &yard{Provider: fake.New(fake.Options{Programs: map[string]fake.Program{"flood": func(_ context.Context, p *fake.Proc) int {
		_, _ = p.Stdout.Write(make([]byte, output))
		return 0
	}}})}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	opts := y.options(samples)
	before, n := heap(), 0
	for r, err := range task.Run(t.Context(), opts, task.RunOptions{MaxSandboxes: 8, Solve: command("flood")}) {
		if err != nil || !passed(r) || r.Steps[0].Stdout.Total != output {
			t.Fatalf("%+v, %v", r, err)
		}
		if n++; n == samples-10 {
			if grown := heap() - before; grown > most {
				t.Errorf("%d bytes after %d results of %d bytes each", grown, n, output)
			}
		}
	}
	if n != samples {
		t.Errorf("%d results", n)
	}
}

// journals keeps journals in memory, by sandbox.
type journals struct {
	mu    sync.Mutex
	lines map[string]*strings.Builder
	open  int
}

func (j *journals) journal(sandbox string) (io.WriteCloser, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines == nil {
		j.lines = map[string]*strings.Builder{}
	}
	if j.lines[sandbox] != nil {
		return nil, errors.New("it is open already")
	}
	j.lines[sandbox] = &strings.Builder{}
	j.open++
	return page{j, sandbox}, nil
}

type page struct {
	j       *journals
	sandbox string
}

func (p page) Write(line []byte) (int, error) {
	p.j.mu.Lock()
	defer p.j.mu.Unlock()
	return p.j.lines[p.sandbox].Write(line)
}

func (p page) Close() error {
	p.j.mu.Lock()
	defer p.j.mu.Unlock()
	p.j.open--
	return nil
}

func TestRun_journals(t *testing.T) {
	y, j := newYard(), &journals{}
	opts := y.options(30)
	opts.Journal = j.journal
	all, err := collect(t.Context(), opts, task.RunOptions{MaxSandboxes: 6, Ahead: 3, Solve: command("echo")})
	if err != nil || len(j.lines) != 30 || j.open != 0 {
		t.Fatalf("%d journals, %d open, %v", len(j.lines), j.open, err)
	}
	for _, r := range all {
		lines := j.lines[r.Sandbox].String()
		for _, want := range []string{`"kind":"sandbox"`, `"phase":"start"`, `"kind":"command"`, `"phase":"close"`, fmt.Sprintf(`"labels":{"epoch":"1","sample":%q,"task":"sums"}`, r.Sample)} {
			if !strings.Contains(lines, want) {
				t.Errorf("%s is not in the journal of %s:\n%s", want, r.Sample, lines)
			}
		}
	}
	if names := slices.Collect(maps.Keys(j.lines)); len(names) != 30 {
		t.Errorf("got %q", names)
	}
}

// A step that could not be started because of an earlier one is the attempt's own fault, unless something else failed too.
func TestRun_unstarted(t *testing.T) {
	lose := func(a *task.Attempt) {
		a.Steps = append(a.Steps, task.Step{Result: &fumehood.Result{Outcome: fumehood.Lost}})
	}
	for name, c := range map[string]struct {
		solve task.Solver
		class string // of the failure; empty means a score of 0
	}{
		"alone":      {func(context.Context, *task.Attempt) error { return nil }, ""},
		"after loss": {func(_ context.Context, a *task.Attempt) error { lose(a); return nil }, task.Infra},
		"with error": {func(context.Context, *task.Attempt) error { return errors.New("broken") }, task.Infra},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := collect(t.Context(), newYard().options(1), task.RunOptions{
				Solve: func(ctx context.Context, a *task.Attempt) error {
					a.Unstarted = "step 2: no \xff"
					return c.solve(ctx, a)
				},
				Score: func(context.Context, *task.Attempt) (task.Score, error) {
					t.Error("the scorer was called")
					return task.Score{Value: 1}, nil
				},
			})
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			r := all[0]
			if c.class != "" {
				if r.Score != nil || r.Error == nil || r.Error.Class != c.class {
					t.Errorf("got %+v, %+v", r.Score, r.Error)
				}
				return
			}
			if r.Error != nil || r.Score == nil || r.Score.Value != 0 || !slices.Equal(r.Score.Reasons, []string{`step 2: no \xff`}) {
				t.Errorf("got %+v, %+v", r.Score, r.Error)
			}
		})
	}
}

func passed(r task.SampleResult) bool { return r.Score != nil && r.Score.Passed() }

// leaky quotes a variable's value in its error, as a provider that does not know secrets may do.
type leaky struct{ fumehood.Provider }

func (leaky) Start(_ context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	return nil, &fumehood.Error{Op: "start", Class: fumehood.ErrConfig, Err: fmt.Errorf("no login with %s", spec.Env["TOKEN"])}
}

func TestRun_redaction(t *testing.T) {
	opts := task.Options{Name: "leaky", Provider: leaky{}, Samples: []task.Sample{{ID: "a", Spec: &fumehood.Spec{Env: map[string]string{"TOKEN": "s3cret"}}}}}
	n := 0
	for r, err := range task.Run(t.Context(), opts, task.RunOptions{Solve: command("true")}) {
		if n++; err != nil || r.Error == nil || strings.Contains(r.Error.Text, "s3cret") || !strings.Contains(r.Error.Text, "no login with [redacted TOKEN]") {
			t.Errorf("got %+v, %v", r.Error, err)
		}
	}
	if n != 1 {
		t.Errorf("%d results", n)
	}
}
