package guest

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// slack is the timer slack of a guest's or worker's threads in nanoseconds: how late the kernel may wake a sleeping
// thread. Go's runtime has a monitor thread that sleeps for only 20 µs at a time while there is work. With the
// kernel's default slack of 50 µs, these threads took more than a tenth of the time of a short command, on 2 cores. A
// larger value than this brings no further gain.
const slack = 2_000_000

// relaxed is the environment variable that passes the default slack to a guest that has exec'd itself. It is removed
// from the environment of commands.
const relaxed = "FUMEHOOD_RELAXED"

// relax sets the slack of all threads of this process. It returns the default slack, which commands use, or 0 if the
// slack was not changed. The monitor thread already exists and keeps its slack, so the program execs itself. It
// remains the same process and keeps its open files.
func relax(program string) (usual int) {
	if s, again := os.LookupEnv(relaxed); again {
		_ = os.Unsetenv(relaxed)   // cannot fail for a valid name
		usual, _ = strconv.Atoi(s) // 0 if the guest did not write it
		return usual
	}
	usual, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil { // the kernel has no timer slack
		return 0
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setSlack(slack) // for this thread, which becomes the first one
	_ = syscall.Exec(program, os.Args, append(os.Environ(), relaxed+"="+strconv.Itoa(usual)))
	setSlack(usual) // the guest works without it
	return 0
}

// setSlack sets the slack of the calling thread, which its children inherit.
func setSlack(ns int) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0) } //nolint:gosec // not negative
