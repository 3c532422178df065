package host

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// A command that was killed may take its supervisor with it. If nothing is left, the kill ended it.
func TestProcess_Wait_killed(t *testing.T) {
	for fields, want := range map[wire.Exit]struct {
		outcome fumehood.Outcome
		signal  int
		inside  bool
	}{
		{Code: 143, Signal: 15, Killed: true}:              {fumehood.Signaled, 15, false},
		{Killed: true}:                                     {fumehood.Exited, 0, false},
		{Code: -1, Lost: true, Killed: true}:               {fumehood.Signaled, 9, false},
		{Code: -1, Lost: true, Killed: true, Survivors: 1}: {fumehood.Lost, 0, true},
		{Code: -1, Lost: true}:                             {fumehood.Lost, 0, true},
	} {
		g, f := newFake(t)
		got, _, err := run(t, g, f, command, false, func(stream uint32) {
			f.say(stream, started)
			f.say(stream, exit(fields))
		})
		if err != nil || got.Outcome != want.outcome || got.Signal != want.signal || got.CausedInside != want.inside {
			t.Errorf("%+v: %+v, %v", fields, got, err)
		}
		if want.outcome == fumehood.Signaled && (!got.Killed || got.Code != 128+want.signal) {
			t.Errorf("%+v: %+v", fields, got)
		}
	}
}
