package guest

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// slack is how late the kernel may wake a thread of a guest or a worker that sleeps, in nanoseconds. Go's runtime keeps
// a thread that looks after the others and sleeps for 20 µs each time while there is something to do. With the kernel's
// usual slack of 50 µs those threads took more than a tenth of the time of a short command, on 2 cores; with more than
// this one nothing is gained.
const slack = 2_000_000

// relaxed is the environment variable by which a guest that begins once more learns the usual slack. Its commands do not
// get it.
const relaxed = "FUMEHOOD_RELAXED"

// relax gives all threads of this process their slack, and returns the usual one, which is for commands; 0 where it is
// left as it is. That thread of Go's is there already, so the program begins once more: it is the same process, and what
// it has open stays open.
func relax(program string) (usual int) {
	if s, again := os.LookupEnv(relaxed); again {
		_ = os.Unsetenv(relaxed)   // it has a name
		usual, _ = strconv.Atoi(s) // 0 for what is not our word
		return usual
	}
	usual, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil { // the kernel knows of none
		return 0
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setSlack(slack) // of this thread, which will be the first one
	_ = syscall.Exec(program, os.Args, append(os.Environ(), relaxed+"="+strconv.Itoa(usual)))
	setSlack(usual) // it can do without
	return 0
}

// setSlack sets the calling thread's slack, which what it starts inherits.
func setSlack(ns int) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0) } //nolint:gosec // not negative
