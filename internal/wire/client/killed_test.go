package client

import (
	"testing"

	"github.com/fumehood/fumehood"
)

// A command that was killed may take its supervisor with it. If nothing is left, the kill ended it.
func TestProcess_Wait_killed(t *testing.T) {
	for fields, want := range map[string]struct {
		outcome fumehood.Outcome
		signal  int
		inside  bool
	}{
		`"code":143,"signal":15,"killed":true,"totals":[0,0]`:              {fumehood.Signaled, 15, false},
		`"code":0,"killed":true,"totals":[0,0]`:                            {fumehood.Exited, 0, false},
		`"code":-1,"lost":true,"killed":true,"totals":[0,0]`:               {fumehood.Signaled, 9, false},
		`"code":-1,"lost":true,"killed":true,"survivors":1,"totals":[0,0]`: {fumehood.Lost, 0, true},
		`"code":-1,"lost":true,"totals":[0,0]`:                             {fumehood.Lost, 0, true},
	} {
		g, f := newFake(t)
		got, _, err := run(t, g, f, command, false, func(stream uint32) {
			f.say(stream, started)
			f.say(stream, exit(fields))
		})
		if err != nil || got.Outcome != want.outcome || got.Signal != want.signal || got.CausedInside != want.inside {
			t.Errorf("%s: %+v, %v", fields, got, err)
		}
		if want.outcome == fumehood.Signaled && (!got.Killed || got.Code != 128+want.signal) {
			t.Errorf("%s: %+v", fields, got)
		}
	}
}
