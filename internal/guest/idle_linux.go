package guest

import (
	"os"
	"os/signal"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// idle reaps orphans, and returns only if it cannot. It survives every signal that can be caught. So a guest that is
// the container's first process survives any signal from the code under test, since the kernel does not deliver
// SIGKILL and SIGSTOP to it from inside.
func idle() {
	dispose(ignore, reserved)
	surviveSignals()
	children, err := catch(unix.SIGCHLD)
	if err != nil {
		return
	}
	var g guest // starts nothing
	onChild(children, func() { g.reap() })
}

// endings are the signals that end a Go program and that another process can send, see package os/signal. The runtime
// drops all others that can be caught, except for those that stop a process.
var endings = []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGTERM}

// faults are the signals of errors in the program itself. Those that another process sends also end a Go program.
var faults = []os.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS}

// reserved are the signals that Go leaves to C libraries. signal.Ignore has no effect on them.
//
// The kernel drops a signal for which a container's first process has no handler. There is an exception: while the
// first thread blocks the signal, the signal kills the process (complete_signal in kernel/signal.c). Go blocks
// signals while it starts a thread or a process. So the first process ignores these signals. Workers restore the
// default, since programs would inherit an ignored signal.
var reserved = []unix.Signal{32, 33, 34}

// The kernel's values of SIG_DFL and SIG_IGN.
const (
	byDefault uintptr = iota
	ignore
)

// dispose sets the disposition of signals.
func dispose(disposition uintptr, signals []unix.Signal) {
	for _, s := range signals {
		act(s, &[4]uintptr{disposition})
	}
}

// surviveSignals makes this process survive the signals of other processes. Programs that it starts do not inherit
// that. signal.Notify would do the same, but it takes about 30 µs for each signal, and signal.Ignore is inherited.
func surviveSignals() {
	dispose(ignore, endings) // the runtime, which had handlers for them, restores the default in a child
	signal.Ignore(faults...) // if they were sent: a fault of this program still ends it with a report
}

// handleIgnored makes the runtime restore the default of the signals that this program's parent ignored, as nohup does, in the
// processes that this one starts. It takes threads, so a guest does it once for its workers.
func handleIgnored() {
	for _, s := range endings {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// onChild calls f now and whenever children may have ended, which children counts, until that is closed.
func onChild(children *os.File, f func()) {
	var count [8]byte
	for err := error(nil); err == nil; _, err = children.Read(count[:]) {
		f()
	}
}

// stopsOrGoesOn are the signals that show a guest that it was stopped. The stop signals are included because the
// kernel discards a pending SIGCONT when one of them is sent.
var stopsOrGoesOn = []unix.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}

// takePending removes a signal that was sent to the process and that no thread has received yet, and reports whether
// there was one.
func takePending(signals ...unix.Signal) bool {
	var set uint64
	for _, s := range signals {
		set |= 1 << (s - 1)
	}
	var now unix.Timespec
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(set), 0, 0)
	return errno == 0
}

// awaitHandlers waits until every thread has handled the signals that it has received. All threads of a stopped process
// continue at once, so one thread may be far ahead of the one that received SIGCONT.
func awaitHandlers() {
	// A thread receives another signal only once it has handled the one before.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGWINCH)
	defer signal.Stop(handled)
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil || unix.Tgkill(unix.Getpid(), id, unix.SIGWINCH) != nil {
			continue
		}
		select {
		case <-handled:
		case <-time.After(handledWithin):
		}
	}
}

// handledWithin bounds the wait for a thread that ends before it handles a signal.
const handledWithin = 100 * time.Millisecond
