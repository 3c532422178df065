package taskfile

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/task"
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
	for sample, want := range map[string]task.StepResult{
		"json":      {Stdout: "0.5\n", Stderr: "why"},
		"exit code": {Stdout: "all right"},
		"invalid":   {Stdout: "score: 1\x1b[2J", Stderr: "oops"},
		"long":      {Stdout: strings.Repeat("x", task.DefaultOutputCap-3) + "end", StdoutTruncated: true},
	} {
		got := results[sample].Grader
		if got == nil {
			t.Errorf("%s: no output of the grader", sample)
			continue
		}
		if got.Stdout != want.Stdout || got.Stderr != want.Stderr || got.StdoutTruncated != want.StdoutTruncated || got.StderrTruncated || got.Outcome != "exited" {
			t.Errorf("%s: got %.200v", sample, *got)
		}
	}
	if got := results["long"].Grader.StdoutTotal; got != 1<<20+3 {
		t.Errorf("%d bytes", got)
	}
	if e := results["invalid"].Error; e == nil || !strings.Contains(e.Text, `"score: 1\x1b[2J"`) || !strings.Contains(e.Text, `"oops"`) {
		t.Errorf("got %+v", e)
	}
}
