//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

func TestEval_resumeCommand(t *testing.T) {
	t.Parallel()
	cmd, dir := program(t, "--provider", "local", "eval", "--sample", "a b", "--sample=c'd", "--epochs", "2", "--max-sandboxes=1", "the task.yaml")
	hangs := filepath.Join(dir, "hangs")
	text := `name: waits
environment: {file: env.yaml}
command: "if [ -e '` + hangs + `' ]; then sleep 600; fi"
samples: [{id: a b, command: "true"}, {id: c'd}, {id: other}]
`
	for name, text := range map[string]string{"the task.yaml": text, "env.yaml": "type: local\n", "hangs": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func() []runs.Entry {
		all, err := runs.List(filepath.Join(dir, "fumehood-runs"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	interrupted(t, cmd, syscall.SIGINT, func() {
		eventually(t, "the first sample has its score", func() bool { all := list(); return len(all) == 1 && all[0].Recorded > 0 })
	})
	stderr := cmd.Stderr.(*bytes.Buffer).String()
	m := regexp.MustCompile("(?m)^fumehood: resume the run with: (.*)$").FindStringSubmatch(stderr)
	if m == nil {
		t.Fatalf("no command in\n%s", stderr)
	}
	if err := os.Remove(hangs); err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), "sh", "-c", m[1])
	again.Env, again.Dir = cmd.Env, dir
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "waits: 4 attempts, 4 passed, 0 failed") {
		t.Errorf("%s: %v\n%s", m[1], err, out)
	}
	if all := list(); len(all) != 1 || all[0].Recorded != 4 {
		t.Errorf("%d runs, %+v", len(all), all)
	}
}

// evalParsed returns the options that a command line of eval stands for, without running it.
func evalParsed(args ...string) (opts evalOptions, err error) {
	a := &commandLine{Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
	cmd := a.newEvalCommand(func(_ context.Context, _ *commandLine, o evalOptions) error {
		opts = o
		return nil
	})
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return opts, cmd.Execute()
}

func TestEval_resumeFlags(t *testing.T) {
	t.Parallel()
	results := map[string]*task.SampleResult{"passed": {Score: &task.Score{Value: 1}}, "failed": {Score: &task.Score{Value: 0.5}}}
	for _, class := range []string{task.Infra, task.Config} {
		results[class] = &task.SampleResult{Error: &task.Failure{Class: class}}
	}
	for flags, want := range map[string][]string{
		"":                                    {task.Infra},
		"--retry-errors":                      {task.Infra},
		"--retry-errors=false":                nil,
		"--retry-failed":                      {task.Config, "failed", task.Infra},
		"--retry-errors=false --retry-failed": {task.Config, "failed"},
	} {
		opts, err := evalParsed(append(strings.Fields(flags), "--resume", "x", "task.yaml")...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for name, r := range results {
			if opts.resume.repeats(r) {
				got = append(got, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s repeats %q, want %q", flags, got, want)
		}
		if wants := strings.Contains(flags, "=false"); slices.Contains(opts.resume.command, "--retry-errors=false") != wants || slices.Contains(opts.resume.command, "--retry-failed") {
			t.Errorf("%s: the resumed run has %q", flags, opts.resume.command)
		}
	}
	for flag, want := range map[string]int{"--retries=0": -1, "--retries=5": 5, "--json": task.DefaultRetries} {
		if opts, err := evalParsed(flag, "task.yaml"); err != nil || opts.how.Retries != want {
			t.Errorf("%s: %d retries, %v", flag, opts.how.Retries, err)
		}
	}
	for _, flag := range []string{"--retries=-1", "--retry-failed", "--retry-errors"} {
		var exit *exitError
		if _, err := evalParsed(flag, "task.yaml"); !errors.As(err, &exit) || exit.code != exitUsage {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
