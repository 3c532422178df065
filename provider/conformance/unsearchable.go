package conformance

import (
	"errors"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
)

// CheckUnsearchable checks that programs which make the root directory inaccessible break their own sandbox only, and that this
// is said of all that fails then. The commands of sb run as root. It closes the sandbox.
func CheckUnsearchable(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	run := func(svc fumehood.Service, args ...string) error {
		r, err := svc.Exec(t.Context(), fumehood.Cmd{Args: args})
		if err == nil && !r.Success() {
			t.Errorf("%q: %+v", args, r)
		}
		return err
	}
	if err := run(sb, "chmod", "0", "/"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 { // more than workers wait for commands
		all.Go(func() {
			if err := run(sb, "sleep", "0.2"); err != nil && !errors.Is(err, fumehood.ErrBroken) {
				t.Errorf("a command of root: %v", err)
			}
		})
	}
	all.Wait()
	other := sb.As("1000")
	WantError(t, run(other, "true"), fumehood.ErrBroken)
	_, err := other.ReadFile(t.Context(), "/etc/passwd", fumehood.ReadOptions{})
	WantError(t, err, fumehood.ErrBroken)
	if err := sb.Chmod(t.Context(), "/", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, svc := range []fumehood.Service{sb, other} {
		if err := run(svc, "true"); err != nil {
			t.Errorf("it stays broken: %v", err)
		}
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
