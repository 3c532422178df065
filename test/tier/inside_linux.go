package tier

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// insideVariable is set in the process that Inside starts.
const insideVariable = "FUMEHOOD_TEST_INSIDE"

// Inside runs t once more in a process with namespaces of its own, and reports false. It reports true in that process.
// t ends as it ends there. A thread with namespaces of its own would not do: it may be the first of this process,
// through which /proc shows the whole process.
func Inside(t *testing.T, namespaces syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(insideVariable) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), insideVariable+"="+t.Name())
	cmd.SysProcAttr = &namespaces
	Again(t, cmd)
	return false
}
