package box

import (
	"testing"
	"testing/synctest"

	"github.com/fumehood/fumehood"
)

// A command may kill its guest when it is killed itself.
func TestCommand_Kill_takesGuest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code      int // exit code of the guest
		survivors int // of the sweep
		outcome   fumehood.Outcome
		complete  bool
	}{
		"nothing is left":       {code: 137, outcome: fumehood.Signaled, complete: true},
		"something is left":     {code: 137, survivors: 2, outcome: fumehood.Lost},
		"the connection is cut": {code: 1, outcome: fumehood.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &fakeUnit{survivors: c.survivors}
				m := managed(t, h)
				defer m.Close()
				p := command(t, m, "user")
				killed := make(chan bool)
				go func() { killed <- p.Kill(t.Context()) }()
				synctest.Wait()
				h.execs[0].end(c.code)
				exit, err := p.Wait(t.Context())
				if err != nil || exit.Outcome != c.outcome || exit.CausedInside != (c.outcome == fumehood.Lost && c.code == 137) {
					t.Errorf("%+v, %v", exit, err)
				}
				if complete := <-killed; complete != c.complete || exit.Outcome == fumehood.Signaled && (exit.Code != 137 || exit.Signal != 9) {
					t.Errorf("complete: %v, %+v", complete, exit)
				}
			})
		})
	}
}
