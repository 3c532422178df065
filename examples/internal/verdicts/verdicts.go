// Package verdicts translates results of the task in examples/judge into a judge's verdicts.
package verdicts

import (
	"fmt"
	"iter"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/taskfile"
)

// Of returns the verdict on a submission, derived from how its last step ended.
func Of(r task.SampleResult) string {
	if r.Score == nil {
		return "none: " + r.Error.Text
	}
	last := r.Steps[len(r.Steps)-1]
	switch {
	case r.Score.Passed():
		return "accepted"
	case last.Name == "build":
		return "compile error"
	}
	switch last.Outcome {
	case fumehood.TimedOut, fumehood.CPUTimeExceeded:
		return "time limit"
	case fumehood.OutOfMemory:
		return "memory limit"
	case fumehood.Signaled:
		return "runtime error"
	case fumehood.Exited, fumehood.Lost: // a lost step has no score
	}
	switch {
	case last.ExitCode != 0, last.Name != "test 3" && strings.Contains(r.Score.Reasons[0], "no such file"):
		return "runtime error" // in the last case, the program has removed itself
	case strings.Contains(r.Score.Reasons[0], "too long"):
		return "output limit"
	}
	return "wrong answer"
}

// Compare compares the verdicts with those in the metadata of the samples. It returns how many there are of each, and
// what differs.
func Compare(samples []*taskfile.Sample, results iter.Seq2[task.SampleResult, error]) (count map[string]int, differences []string, err error) {
	got := map[string]string{}
	for r, err := range results {
		if err != nil {
			return nil, nil, err
		}
		got[r.Sample] = Of(r)
	}
	count = map[string]int{}
	for _, s := range samples {
		verdict, ok := got[s.ID]
		if !ok {
			verdict = "none: there is no result"
		}
		count[verdict]++
		if want := s.Metadata["verdict"]; verdict != want {
			differences = append(differences, fmt.Sprintf("%s: the verdict is %q, want %q", s.ID, verdict, want))
		}
	}
	return count, differences, nil
}
