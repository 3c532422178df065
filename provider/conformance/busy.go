package conformance

import (
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// Busy checks that a short command is not held up by many others of the sandbox that use the processors. The sandbox has sh.
func Busy(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	const (
		loops = "i=0; while [ $i -lt 200 ]; do (while :; do :; done) & i=$((i+1)); done; echo begun; wait"
		// within is ten times what it takes; without its own share of the processors it took 11 to 17 s.
		within = 5 * time.Second
	)
	busy, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", loops}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range busy.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	for range 5 {
		r, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		if err != nil || !r.Success() || r.Duration > within {
			t.Errorf("got %+v, %v", r, err)
		}
		t.Logf("took %v", r.Duration)
	}
	if err := busy.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}
