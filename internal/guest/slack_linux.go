package guest

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// slack is the timer slack of a guest's or worker's threads in nanoseconds: how late the kernel may wake a sleeping
// thread. Go's runtime has a monitor thread that sleeps for only 20 µs at a time while there is work. With the
// kernel's default slack of 50 µs, these threads took more than a tenth of the time of a short command, on 2 cores. A
// larger value than this brings no further gain.
const slack = 2_000_000

// relax sets the slack of all threads of this process, also of the runtime's own. It returns the default slack, which
// commands use, or 0 if the slack was not changed.
func relax() (usual int) {
	usual, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil { // the kernel has no timer slack
		return 0
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, slack, 0); errno != 0 {
		return 0 // the guest works without it
	}
	return usual
}

// setSlack sets the slack of the calling thread, which its children inherit.
func setSlack(ns int) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0) } //nolint:gosec // not negative
