package taskfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider/fake"
)

func TestTask_graderOutput(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"task.yaml": `
name: t
command: [print]
samples:
  - {id: json, grader: {command: [print, "0.5\n", why]}}
  - {id: exit code, grader: {command: [print, all right, ""], score: exit_code}}
  - {id: invalid, grader: {command: [print, "score: 1\e[2J", oops]}}
  - {id: long, grader: {command: [flood], score: exit_code}}
`})
	results := run(t, f, fake.New(fake.Options{Programs: map[string]fake.Program{
		"print": func(_ context.Context, p *fake.Proc) int {
			for i, w := range []io.Writer{p.Stdout, p.Stderr} {
				if len(p.Args) > i+1 {
					fmt.Fprint(w, p.Args[i+1])
				}
			}
			return 0
		},
		"flood": func(_ context.Context, p *fake.Proc) int {
			fmt.Fprint(p.Stdout, strings.Repeat("x", 1<<20)+"end")
			return 0
		},
	}}))
	for sample, want := range map[string]struct {
		stdout, stderr string
		truncated      bool
	}{
		"json":      {stdout: "0.5\n", stderr: "why"},
		"exit code": {stdout: "all right"},
		"invalid":   {stdout: "score: 1\x1b[2J", stderr: "oops"},
		"long":      {stdout: strings.Repeat("x", task.DefaultOutputCap-3) + "end", truncated: true},
	} {
		got := results[sample].Grader
		if got == nil {
			t.Errorf("%s: no output of the grader", sample)
			continue
		}
		if got.Stdout.Text() != want.stdout || got.Stderr.Text() != want.stderr || got.Stdout.Truncated() != want.truncated || got.Stderr.Truncated() || got.Outcome != "exited" {
			t.Errorf("%s: got %.200v", sample, *got)
		}
	}
	if got := results["long"].Grader.Stdout.Total; got != 1<<20+3 {
		t.Errorf("%d bytes", got)
	}
	if e := results["invalid"].Error; e == nil || !strings.Contains(e.Text, `"score: 1\x1b[2J"`) || !strings.Contains(e.Text, `"oops"`) {
		t.Errorf("got %+v", e)
	}
}

// A grader that an attempt makes fail is no error, unless it fails in the same way for empty artifacts.
func TestTask_graderFails(t *testing.T) {
	t.Parallel()
	text := "name: t\nsamples:\n"
	wants := map[string]struct {
		does, artifacts, more string // the grader's command, by the content of its artifact; "-" stands for empty ones
		score                 float64
		failure, reason       string
		runs                  int64 // of the command
	}{
		"score":             {"x=0.5", "[a]", "", 0.5, "", "", 1},
		"exit code":         {"x=exit -=0", "[a]", "", 0, "", "code 3, and not with 0", 2},
		"no score":          {"x=text -=0", "[a]", "", 0, "", "has printed no score", 2},
		"no UTF-8":          {"x=bytes -=0", "[a]", "", 0, "", "has printed no score", 2},
		"too long":          {"x=long -=0", "[a]", "", 0, "", "has printed no score: it has 300001 bytes", 2},
		"other failure":     {"x=exit -=text", "[a]", "", 0, "", "code 3, and not with 0", 2},
		"fails for files":   {"x=exit -=exit /=0", "[a]", "", 0, "", "code 3, and not with 0", 3},
		"fails for all":     {"x=exit -=exit /=exit", "[a]", "", 0, "code 3, and not with 0", "", 3},
		"no score for all":  {"x=text -=text /=text", "[a]", "", 0, "has printed no score", "", 3},
		"fails for a mix":   {"x=exit -=exit /-=exit -/=0", "[a, b]", "", 0, "", "code 3, and not with 0", 4},
		"no artifacts":      {"=exit", "[]", "", 0, "code 3, and not with 0", "", 1},
		"on_failure":        {"x=exit -=0", "[a]", "on_failure: error", 0, "code 3, and not with 0", "", 1},
		"on_failure: score": {"x=exit -=0", "[a]", "on_failure: score", 0, "", "code 3, and not with 0", 2},
		"program missing":   {"", "[a]", "command: [none]", 0, "none", "", 0},
	}
	for id, w := range wants {
		command := fmt.Sprintf("command: [judge, %q]", id)
		if strings.HasPrefix(w.more, "command") {
			command = w.more
		} else if w.more != "" {
			command += ", " + w.more
		}
		text += fmt.Sprintf("  - {id: %q, command: [solve], grader: {%s, artifacts: %s}}\n", id, command, w.artifacts)
	}
	f, _ := mustLay(t, map[string]string{"task.yaml": text})
	var mu sync.Mutex
	runs := map[string]int64{}
	results := run(t, f, fake.New(fake.Options{Programs: map[string]fake.Program{
		"solve": func(_ context.Context, p *fake.Proc) int {
			_ = errors.Join(p.WriteFile("a", []byte("x")), p.WriteFile("b", []byte("x")))
			return 0
		},
		"judge": func(_ context.Context, p *fake.Proc) int {
			id := strings.Join(p.Args[1:], " ")
			mu.Lock()
			runs[id]++
			mu.Unlock()
			return judge(p, wants[id].does)
		},
	}}))
	for id, w := range wants {
		r := results[id]
		switch {
		case w.failure != "":
			if r.Error == nil || r.Error.Class != "config" || !strings.Contains(r.Error.Text, w.failure) {
				t.Errorf("%s: want an error with %q: %+v", id, w.failure, r)
			}
		case r.Score == nil || r.Score.Value != w.score || !strings.Contains(strings.Join(r.Score.Reasons, ""), w.reason):
			t.Errorf("%s: want %v and %q: %+v, %+v, %+v", id, w.score, w.reason, r, r.Score, r.Error)
		}
		if runs[id] != w.runs {
			t.Errorf("%s: %d runs of the grader, want %d", id, runs[id], w.runs)
		}
	}
}

// judge does what is told for the artifacts that a grader got: x is the attempt's, - an empty file, / an empty folder.
func judge(p *fake.Proc, input string) int {
	got := ""
	for _, name := range []string{"a", "b"} {
		data, err := p.ReadFile("/submission/" + name)
		switch {
		case errors.Is(err, fumehood.ErrIsDirectory):
			got += "/"
		case err == nil && len(data) == 0:
			got += "-"
		case err == nil:
			got += string(data)
		}
	}
	for _, each := range strings.Fields(input) {
		kinds, does, _ := strings.Cut(each, "=")
		if kinds != got && (len(got) != 2 || kinds+kinds != got) {
			continue
		}
		switch does {
		case "exit":
			return 3
		case "text":
			does = "passed"
		case "bytes":
			does = "\"\xff\""
		case "long":
			does = strings.Repeat("x", 300_001)
		}
		fmt.Fprint(p.Stdout, does)
		return 0
	}
	return 4
}

// The result for empty artifacts is kept.
func TestTask_graderFailsOften(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"task.yaml": "name: t\nepochs: 5\nsamples: [{id: a, command: [solve], grader: {command: [judge], artifacts: [a]}}]\n"})
	var runs atomic.Int64
	p := fake.New(fake.Options{Programs: map[string]fake.Program{
		"solve": func(_ context.Context, p *fake.Proc) int {
			_ = p.WriteFile("a", []byte("x"))
			return 0
		},
		"judge": func(_ context.Context, p *fake.Proc) int {
			runs.Add(1)
			return judge(p, "x=exit -=0")
		},
	}})
	taskOpts, how, err := f.Task(t.Context(), p, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range task.Run(t.Context(), taskOpts, how) {
		if err != nil || r.Score == nil || r.Score.Value != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if n := runs.Load(); n != 6 {
		t.Errorf("%d runs of the grader, want one for each attempt and one for an empty artifact", n)
	}
}
