package task_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// graded returns the options of a task with n samples that may have a second sandbox.
func (y *yard) graded(n int) task.Options {
	opts := y.options(n)
	for i := range opts.Samples {
		opts.Samples[i].Others = []fumehood.Spec{{}}
	}
	return opts
}

// grading returns a scorer that uses a second sandbox for a while.
func grading(d time.Duration) task.Scorer {
	return func(ctx context.Context, a *task.Attempt) (task.Score, error) {
		err := a.Beside(ctx, fumehood.Spec{}, func(ctx context.Context, sb fumehood.Sandbox) error {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			_, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"echo"}})
			return err
		})
		return task.Score{Value: 1}, err
	}
}

func TestBeside_limits(t *testing.T) {
	for most := 2; most <= 9; most++ {
		synctest.Test(t, func(t *testing.T) {
			y, j := newYard(), &journals{}
			y.takes = time.Second
			opts := y.graded(30)
			opts.Journal = j.journal
			all, err := collect(t.Context(), opts, task.RunOptions{MaxSandboxes: most, MaxStarting: 2, Solve: solving(time.Second), Score: grading(2 * time.Second)})
			if err != nil || len(all) != 30 || slices.ContainsFunc(all, func(r task.SampleResult) bool { return !passed(r) }) {
				t.Fatalf("%d: %+v, %v", most, all, err)
			}
			if y.mostAlive != most || y.mostStarting > 2 || len(y.names) != 60 {
				t.Errorf("%d sandboxes at once, %d starting, %d in total; want at most %d and 2", y.mostAlive, y.mostStarting, len(y.names), most)
			}
			if len(j.lines) != 60 || j.open != 0 {
				t.Errorf("%d journals, %d of them open", len(j.lines), j.open)
			}
			y.gone(t)
		})
	}
}

// Nothing of the attempt ran in the second sandbox yet, so the attempt cannot have broken it.
func TestBeside_startFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.fail = func(n int, _ fumehood.Spec) error {
			if n == 2 {
				return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrBroken, Err: errors.New("its program has ended")}
			}
			return nil
		}
		all, err := collect(t.Context(), y.graded(1), task.RunOptions{Ahead: -1, Retries: -1, Solve: command("echo"), Score: grading(0)})
		if err != nil || len(all) != 1 || all[0].Score != nil || all[0].Error == nil || all[0].Error.Class != task.Infra || !strings.Contains(all[0].Error.Text, "its program has ended") {
			t.Errorf("%+v, %v", all, err)
		}
		y.gone(t)
	})
}

func TestBeside_waitNotTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Three attempts run at once, and one of them is graded. The second waits for 50 s, and the third for 100
		// s.
		all, err := collect(t.Context(), newYard().graded(3), task.RunOptions{
			MaxSandboxes: 4, Ahead: -1, Timeout: time.Minute, Solve: solving(time.Second), Score: grading(50 * time.Second),
		})
		if err != nil || len(all) != 3 || slices.ContainsFunc(all, func(r task.SampleResult) bool { return !passed(r) }) {
			t.Fatalf("%+v, %v", all, err)
		}
		all, err = collect(t.Context(), newYard().graded(1), task.RunOptions{Timeout: time.Minute, Solve: solving(20 * time.Second), Score: grading(50 * time.Second)})
		if err != nil || all[0].Score == nil || all[0].Score.Passed() || all[0].Phases["score"] != 40 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestBeside_interrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		all, err := collect(ctx, y.graded(10), task.RunOptions{MaxSandboxes: 4, Ahead: -1, Solve: solving(time.Second), Score: grading(time.Hour)})
		if !errors.Is(err, fumehood.ErrCanceled) || len(all) != 3 {
			t.Errorf("%+v, %v", all, err)
		}
		for _, r := range all {
			if r.Error == nil || r.Error.Class != task.Canceled {
				t.Errorf("%+v", r)
			}
		}
		y.gone(t)
	})
}

func TestBeside_keep(t *testing.T) {
	y := newYard()
	removed := 0
	opts := y.graded(1)
	opts.Keep, opts.Removed = true, func(task.Removal) { removed++ }
	if all, err := collect(t.Context(), opts, task.RunOptions{Solve: command("echo"), Score: grading(0)}); err != nil || !passed(all[0]) || removed != 1 {
		t.Errorf("%+v, %v; %d were removed", all, err, removed)
	}
}

func TestBeside_invalid(t *testing.T) {
	beside := func(ctx context.Context, a *task.Attempt) error {
		return a.Beside(ctx, fumehood.Spec{}, func(context.Context, fumehood.Sandbox) error { return nil })
	}
	for says, score := range map[string]task.Scorer{
		"which only the task may set": func(ctx context.Context, a *task.Attempt) (task.Score, error) {
			return task.Score{}, a.Beside(ctx, fumehood.Spec{Name: "own"}, nil)
		},
		"already has a second sandbox": func(ctx context.Context, a *task.Attempt) (task.Score, error) {
			return task.Score{}, a.Beside(ctx, fumehood.Spec{}, func(ctx context.Context, _ fumehood.Sandbox) error { return beside(ctx, a) })
		},
		"was not created by Run": func(ctx context.Context, a *task.Attempt) (task.Score, error) {
			return task.Score{}, beside(ctx, &task.Attempt{Sample: a.Sample, Sandbox: a.Sandbox})
		},
	} {
		y := newYard()
		all, err := collect(t.Context(), y.graded(1), task.RunOptions{Solve: command("echo"), Score: score})
		if err != nil || all[0].Error == nil || all[0].Error.Class != task.Config || !strings.Contains(all[0].Error.Text, says) {
			t.Errorf("%s: %+v, %v", says, all[0].Error, err)
		}
		y.gone(t)
	}
	all, err := collect(t.Context(), newYard().options(1), task.RunOptions{Solve: beside})
	if err != nil || all[0].Error == nil || all[0].Error.Class != task.Config || !strings.Contains(all[0].Error.Text, "has no Others") {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = collect(t.Context(), newYard().graded(1), task.RunOptions{MaxSandboxes: 1, Solve: command("echo")})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "an attempt needs two") {
		t.Errorf("got %v", err)
	}
	opts := newYard().graded(1)
	opts.Samples[0].Others[0].Keep = true
	if _, err = collect(t.Context(), opts, task.RunOptions{Solve: command("echo")}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}
