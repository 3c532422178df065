package task_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

func TestInit_allProblems(t *testing.T) {
	t.Parallel()
	opts := task.Options{Name: "t", Provider: newFake(), Samples: []task.Sample{{
		ID: "a", Files: map[string]task.Content{"f": {Path: "/none"}, "db:": {}, "g": {Path: "/none too"}}, Setup: task.Content{Data: "data:;base64,!"},
		Spec: &fumehood.Spec{Dir: "relative"},
	}}}
	_, err := task.Init(t.Context(), opts)
	for _, says := range []string{"not absolute", `file "db:"`, `file "f"`, `file "g"`, "setup: "} {
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), `sample "a": `) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v\nwithout %s", err, says)
		}
	}
}

func TestInit_allImageKeys(t *testing.T) {
	t.Parallel()
	opts := task.Options{Name: "t", Provider: newFake(), Samples: []task.Sample{{ID: "good"}}}
	for i := range 22 {
		opts.Samples = append(opts.Samples, task.Sample{ID: fmt.Sprint(i), Spec: &fumehood.Spec{Image: "wrong"}})
	}
	_, err := task.Init(t.Context(), opts)
	if !errors.Is(err, fumehood.ErrConfig) || strings.Count(err.Error(), "load: line 3 is wrong") != 3 ||
		!strings.HasSuffix(err.Error(), "\nand 19 more like it: sample \"3\", sample \"4\", sample \"5\", sample \"6\", sample \"7\", sample \"8\", sample \"9\", sample \"10\", sample \"11\", sample \"12\", ...") {
		t.Errorf("got %v", err)
	}
}
