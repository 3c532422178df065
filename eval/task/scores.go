package task

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// lastStepSucceeds is the default scorer.
func lastStepSucceeds(_ context.Context, a *Attempt) (Score, error) {
	if len(a.Steps) == 0 {
		return Score{}, &fumehood.Error{Op: "score", Class: fumehood.ErrConfig, Err: errors.New("the solver has recorded no step")}
	}
	last := len(a.Steps) - 1
	step := a.Steps[last]
	if step.Result.Success() {
		return Score{Value: 1}, nil
	}
	return Score{Reasons: []string{"step " + stepName(last, step) + " " + describeEnd(step.Result, step.Cmd.Timeout)}}, nil
}

// check rejects an invalid score. In the reasons it escapes bytes that are not UTF-8.
func (s *Score) check() error {
	bad := func(name string, value float64) error {
		return &fumehood.Error{Op: "score", Class: fumehood.ErrConfig, Err: fmt.Errorf("%s is %v, which is not from 0 to 1", name, value)}
	}
	if !isScore(s.Value) {
		return bad("the score", s.Value)
	}
	for name, value := range s.Parts {
		if !isScore(value) {
			return bad(fmt.Sprintf("the score %q", name), value)
		}
		if !utf8.ValidString(name) { // in a record it could not be told from another
			return &fumehood.Error{Op: "score", Class: fumehood.ErrConfig, Err: fmt.Errorf("the name of the score %q is not UTF-8", name)}
		}
	}
	for i, reason := range s.Reasons {
		s.Reasons[i] = jsontext.Escape(reason)
	}
	return nil
}

// isScore reports whether v is from 0 to 1. It is false for NaN.
func isScore(v float64) bool { return 0 <= v && v <= 1 }
