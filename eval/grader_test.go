package eval_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/provider/fake"
)

// An attempt that makes its grader fail stays in the pass rate.
func TestRun_graderFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "name: t\ngrader: {command: [grade], artifacts: [answer]}\nsamples: [{id: right, command: [solve, '1']}, {id: hostile, command: [solve, none]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "task.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	programs := map[string]fake.Program{
		"solve": func(_ context.Context, p *fake.Proc) int {
			_ = p.WriteFile("answer", []byte(p.Args[1]))
			return 0
		},
		"grade": func(_ context.Context, p *fake.Proc) int {
			answer, err := p.ReadFile("/submission/answer")
			if string(answer) == "none" {
				return 1
			}
			fmt.Fprint(p.Stdout, min(len(answer), 1))
			if err != nil {
				return 2
			}
			return 0
		},
	}
	report, err := eval.Run(t.Context(), dir, eval.Options{
		Runs: filepath.Join(t.TempDir(), "runs"),
		Open: func(context.Context, string) (fumehood.Provider, error) {
			return fake.New(fake.Options{Programs: programs}), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := report.Summary; s.Attempts != 2 || s.Passed != 1 || s.Failed != 1 {
		t.Errorf("the summary is %+v", s)
	}
}
