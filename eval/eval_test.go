package eval_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider/local"
)

// sums has three samples, of which the second fails.
const sums = `
name: sums
environment: {file: env.yaml}
command: sh -c 'echo $((1 + 2))'
samples:
  - {id: one, expect: {stdout: {trimmed: "3"}}}
  - {id: two, expect: {stdout: {trimmed: "4"}}}
  - {id: three, expect: {stdout: {trimmed: "3"}}}
`

// lay writes the task sums, of type local. It returns its folder and options to run it.
func lay(t *testing.T) (string, eval.Options) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"task.yaml": sums, "env.yaml": "type: local\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, eval.Options{
		AllowLocal: true, Runs: filepath.Join(t.TempDir(), "runs"), MaxSandboxes: 1,
		Open: func(context.Context, string) (fumehood.Provider, error) {
			return local.New(local.Options{StateDir: t.TempDir()})
		},
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	var began, recorded []string
	var last task.Progress
	opts.Began = func(r *runs.Folder) error {
		began = append(began, r.Dir())
		return nil
	}
	opts.Recorded = func(r *task.SampleResult) error {
		recorded = append(recorded, r.Sample)
		return nil
	}
	opts.Progress = func(p task.Progress) { last = p }
	report, err := eval.Run(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if s := report.Summary; s.Attempts != 3 || s.Recorded != 3 || s.Passed != 2 || s.Failed != 1 {
		t.Errorf("the summary is %+v", s)
	}
	if !slices.Equal(began, []string{report.Dir}) || !slices.Equal(recorded, []string{"one", "two", "three"}) || last.Passed != 2 || last.Failed != 1 {
		t.Errorf("%s: Began, Recorded and Progress got %q, %q, %+v", report.Dir, began, recorded, last)
	}
	f, err := runs.Read(report.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.Summary(); err != nil || s.Passed != 2 || filepath.Dir(f.Dir()) != opts.Runs {
		t.Errorf("%s has %+v, %v", f.Dir(), s, err)
	}
}

func TestRun_resume(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	first := opts
	first.FailFast = true
	report, err := eval.Run(t.Context(), dir, first)
	if err != nil || report.Summary.Recorded != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	opts.Resume = report.Dir
	fewer := opts
	fewer.Limit = 2
	if _, err := eval.Run(t.Context(), dir, fewer); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("with other samples: %v", err)
	}
	var recorded []string
	opts.Recorded = func(r *task.SampleResult) error {
		recorded = append(recorded, r.Sample)
		return nil
	}
	report, err = eval.Run(t.Context(), dir, opts)
	if err != nil || report.Summary.Recorded != 3 || !slices.Equal(recorded, []string{"three"}) || report.Dir != opts.Resume {
		t.Errorf("%q, %+v, %v", recorded, report, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "task.yaml"), []byte(sums+"  - {id: four, expect: {exit_code: 0}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := eval.Run(t.Context(), dir, opts); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("with another task: %v", err)
	}
}

func TestRun_allowLocal(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	opts.AllowLocal = false
	opts.Open = func(context.Context, string) (fumehood.Provider, error) {
		t.Error("a provider was opened")
		return nil, errors.New("none")
	}
	if _, err := eval.Run(t.Context(), dir, opts); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(opts.Runs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run was created: %v", err)
	}
}

// The folder may come from a stranger. Its task.yaml is not read through a link out of the folder, unless allowed.
func TestRun_taskLink(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	link := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "task.yaml"), filepath.Join(link, "task.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := eval.Run(t.Context(), link, opts); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "is outside the folder that was named") {
		t.Errorf("got %v", err)
	}
}

func TestRun_noSample(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	opts.Samples = []string{"one", "five"}
	if _, err := eval.Run(t.Context(), filepath.Join(dir, "task.yaml"), opts); !errors.Is(err, eval.ErrNoSample) || !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

func TestRun_errorReport(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	enough := errors.New("enough")
	n := 0
	opts.Recorded = func(*task.SampleResult) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	}
	report, err := eval.Run(t.Context(), dir, opts)
	if !errors.Is(err, enough) || report.Summary.Recorded != 2 || report.Dir == "" {
		t.Errorf("%+v, %v", report, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	opts.Recorded = nil
	opts.Began = func(*runs.Folder) error {
		cancel()
		return nil
	}
	report, err = eval.Run(ctx, dir, opts)
	if !errors.Is(err, fumehood.ErrCanceled) || report.Dir != "" {
		t.Errorf("of a run without results: %+v, %v", report, err)
	}
	if entries, err := runs.List(opts.Runs); err != nil || len(entries) != 1 {
		t.Errorf("%d runs are left: %v", len(entries), err)
	}
}

func TestRun_finishFails(t *testing.T) {
	t.Parallel()
	dir, opts := lay(t)
	opts.Began = func(r *runs.Folder) error { return os.Mkdir(filepath.Join(r.Dir(), "summary.json"), 0o700) }
	notified := 0
	opts.Ended = func(*eval.Report) error {
		notified++
		return nil
	}
	if _, err := eval.Run(t.Context(), dir, opts); err == nil || notified != 1 {
		t.Errorf("Ended is called %d times: %v", notified, err)
	}
	opts.Open = nil
	if _, err := eval.Run(t.Context(), dir, opts); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("without Open: %v", err)
	}
}
