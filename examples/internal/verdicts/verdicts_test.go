package verdicts

import (
	"errors"
	"slices"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/taskfile"
)

func TestCompare(t *testing.T) {
	sample := func(id, verdict string) *taskfile.Sample {
		return &taskfile.Sample{ID: id, Defaults: taskfile.Defaults{Metadata: map[string]string{"verdict": verdict}}}
	}
	result := func(id string, value float64, outcome fumehood.Outcome) task.SampleResult {
		return task.SampleResult{
			Sample: id, Score: &task.Score{Value: value, Reasons: []string{"differs"}},
			Steps: []task.StepResult{{Name: "build"}, {Name: "test 1", Result: fumehood.Result{Outcome: outcome}}},
		}
	}
	all := []task.SampleResult{
		result("right", 1, fumehood.Exited), result("wrong", 0, fumehood.Exited), result("slow", 0, fumehood.TimedOut), result("lucky", 1, fumehood.Exited),
		{Sample: "broken", Error: &task.Failure{Text: "no daemon"}},
	}
	samples := []*taskfile.Sample{
		sample("right", "accepted"), sample("wrong", "wrong answer"), sample("slow", "time limit"), sample("lucky", "wrong answer"),
		sample("broken", "accepted"), sample("missing", "accepted"),
	}
	results := func(yield func(task.SampleResult, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
	count, differences, err := Compare(samples, results)
	want := []string{
		`lucky: the verdict is "accepted", want "wrong answer"`, `broken: the verdict is "none: no daemon", want "accepted"`,
		`missing: the verdict is "none: there is no result", want "accepted"`,
	}
	if err != nil || !slices.Equal(differences, want) || count["accepted"] != 2 || count["time limit"] != 1 {
		t.Errorf("%v, %q, %v", count, differences, err)
	}
	unreadable := errors.New("unreadable")
	_, _, err = Compare(samples, func(yield func(task.SampleResult, error) bool) { yield(task.SampleResult{}, unreadable) })
	if !errors.Is(err, unreadable) {
		t.Errorf("got %v", err)
	}
}
