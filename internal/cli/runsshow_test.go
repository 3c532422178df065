package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

func TestShowAttempt_grader(t *testing.T) {
	t.Parallel()
	r := task.SampleResult{
		Sample: "a", Epoch: 1, Score: &task.Score{Value: 1},
		Grader: &task.StepResult{Name: "grader", Result: fumehood.Result{
			Outcome: "exited", Stdout: fumehood.Output{Total: 20_000, Bytes: []byte("1\x1b[2J\n")}, Stderr: fumehood.Output{Total: 4, Bytes: []byte("why\n")},
		}},
	}
	var out bytes.Buffer
	a := &commandLine{Streams: Streams{Out: &out}}
	if err := a.showAttempt(&r); err != nil {
		t.Fatal(err)
	}
	want := `grader: exit 0 after 0.00 s, 0.00 s of CPU
  standard output, 20000 bytes, of which only the end was kept:
    1\x1b[2J
  standard error, 4 bytes:
    why
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
