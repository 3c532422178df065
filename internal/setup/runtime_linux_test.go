package setup

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The runtime does not get the personality of the process that starts it. The test runs itself, because Launch closes
// standard streams.
func TestLaunch_personality(t *testing.T) {
	const variable, noRandomize = "FUMEHOOD_TEST_PERSONALITY", 0x0040000 // personality(2)
	if os.Getenv(variable) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), variable+"=1")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil || stderr.String() != "00000000\n" {
			t.Errorf("its personality is %q, %v", stderr.String(), err)
		}
		return
	}
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, noRandomize, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	l := Launch{Args: []string{"/bin/sh", "-c", "cat /proc/self/personality >&2; exit 7"}}
	if code, err := l.run(); err != nil || code != 7 {
		t.Fatalf("exit code %d, %v", code, err)
	}
}
