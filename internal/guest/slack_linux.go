package guest

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// slack is how late the kernel may wake a thread of a guest or a worker that sleeps, in nanoseconds. Go's runtime keeps
// a thread that looks after the others and sleeps for 20 µs each time while there is something to do. With the kernel's
// usual slack of 50 µs those threads took more than a tenth of the time of a short command, on 2 cores; with more than
// this one nothing is gained.
const slack = 2_000_000

// relax gives all threads of this process their slack, and returns the usual one, which is for commands; 0 where the
// kernel knows of none. That thread of Go's is there already, so the program begins once more: it is the same process,
// and what it has open stays open.
func relax(program string) (usual int) {
	runtime.LockOSThread() // the first one, whose own is the usual one
	defer runtime.UnlockOSThread()
	has, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || unix.Gettid() != os.Getpid() {
		return 0
	}
	if has == slack {
		setSlack(0)
		usual, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0) // as just now
		setSlack(slack)
		return usual
	}
	setSlack(slack)
	_ = syscall.Exec(program, os.Args, os.Environ())
	setSlack(has) // it can do without
	return 0
}

// setSlack sets the calling thread's slack, which what it starts inherits; 0 for the one that it inherited itself.
func setSlack(ns int) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0) } //nolint:gosec // not negative
