package eval_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider/fake"
)

// unsteady is a provider in memory whose next starts fail.
type unsteady struct {
	fumehood.Provider
	failing atomic.Int64 // starts that fail
	starts  atomic.Int64
}

func (u *unsteady) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	u.starts.Add(1)
	if u.failing.Add(-1) >= 0 {
		return nil, &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrInfrastructure, Err: errors.New("the daemon is gone")}
	}
	return u.Provider.Start(ctx, spec)
}

// layUnsteady writes a task whose samples exit with 0 and 1. It returns the task's path, options to run it, and its
// provider.
func layUnsteady(t *testing.T) (string, eval.Options, *unsteady) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(path, []byte("{name: t, samples: [{id: good, command: [pass]}, {id: bad, command: [fail]}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := &unsteady{Provider: fake.New(fake.Options{Programs: map[string]fake.Program{
		"pass": func(context.Context, *fake.Proc) int { return 0 },
		"fail": func(context.Context, *fake.Proc) int { return 1 },
	}})}
	return path, eval.Options{
		Runs: filepath.Join(t.TempDir(), "runs"), MaxSandboxes: 1, Retries: -1,
		Open: func(context.Context, string) (fumehood.Provider, error) { return u, nil },
	}, u
}

func TestRun_repeat(t *testing.T) {
	t.Parallel()
	failed := func(r *task.SampleResult) bool { return r.Score != nil && !r.Score.Passed() }
	none := func(*task.SampleResult) bool { return false }
	for name, c := range map[string]struct {
		repeat func(*task.SampleResult) bool
		want   []string
	}{"default": {nil, []string{"good"}}, "none": {none, nil}, "failed": {failed, []string{"bad"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, opts, u := layUnsteady(t)
			u.failing.Store(1)
			report, err := eval.Run(t.Context(), path, opts)
			if err != nil || report.Summary.Errors[task.Infra] != 1 || report.Summary.Failed != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			opts.Resume, opts.Repeat = report.Dir, c.repeat
			var again []string
			opts.Recorded = func(r *task.SampleResult) error {
				again = append(again, r.Sample)
				return nil
			}
			report, err = eval.Run(t.Context(), path, opts)
			if err != nil || !slices.Equal(again, c.want) || report.Summary.Recorded != 2 {
				t.Errorf("repeated %q: %+v, %v", again, report.Summary, err)
			}
		})
	}
}

// Results are dropped only if the run can be resumed.
func TestRun_repeatOtherTask(t *testing.T) {
	t.Parallel()
	path, opts, _ := layUnsteady(t)
	report, err := eval.Run(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{name: t, samples: [{id: good, command: [fail]}, {id: bad, command: [fail]}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	results := filepath.Join(report.Dir, "results.jsonl")
	before, _ := os.ReadFile(results)
	opts.Resume, opts.Repeat = report.Dir, func(*task.SampleResult) bool { return true }
	if _, err := eval.Run(t.Context(), path, opts); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(results); err != nil || len(before) == 0 || string(after) != string(before) {
		t.Errorf("the results were %s and are %s, %v", before, after, err)
	}
}

func TestRun_retries(t *testing.T) {
	t.Parallel()
	for retries, starts := range map[int]int64{-1: 1, 0: task.DefaultRetries + 1, 1: 2} {
		path, opts, u := layUnsteady(t)
		opts.Retries, opts.Limit = retries, 1
		u.failing.Store(10)
		if _, err := eval.Run(t.Context(), path, opts); err != nil || u.starts.Load() != starts {
			t.Errorf("%d retries: %d starts, want %d, %v", retries, u.starts.Load(), starts, err)
		}
	}
}
