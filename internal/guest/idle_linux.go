package guest

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// idle reaps orphans and never returns. It catches and ignores every signal that can be caught. So a guest that is
// the container's first process survives any signal from the code under test, since the kernel does not deliver
// SIGKILL and SIGSTOP to it from inside.
func idle() {
	handleReserved(ignore)
	var g guest // starts nothing
	onChild(takeSignals(syscall.SIGCHLD), func() { g.reap() })
}

// The kernel's values of SIG_DFL and SIG_IGN.
const (
	byDefault uintptr = iota
	ignore
)

// handleReserved sets the disposition of signals 32 to 34, which Go leaves to C libraries. signal.Ignore has no
// effect on them.
//
// The kernel drops a signal for which a container's first process has no handler. There is an exception: while the
// first thread blocks the signal, the signal kills the process (complete_signal in kernel/signal.c). Go blocks
// signals while it starts a thread or a process. So the first process ignores these signals. Workers restore the
// default, since programs would inherit an ignored signal.
func handleReserved(disposition uintptr) {
	action := [4]uintptr{disposition} // the kernel's struct: handler, flags, restorer, mask
	for s := uintptr(32); s <= 34; s++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

// onChild calls f now and after each signal, and never returns. A signal may mean that a child has ended.
func onChild(signals <-chan os.Signal, f func()) {
	for {
		f()
		<-signals
	}
}

// takeSignals returns a channel with a buffer of one that receives the signals of more, and every signal that would
// end the process and can be caught. The exception is SIGURG, which Go's scheduler uses.
func takeSignals(more ...os.Signal) <-chan os.Signal {
	for s := syscall.Signal(1); s <= 64; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP && s != syscall.SIGURG && s != syscall.SIGCHLD {
			more = append(more, s)
		}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, more...)
	return c
}

// stopsOrGoesOn are the signals that show a guest that it was stopped. The stop signals are included because the
// kernel discards a pending SIGCONT when one of them is sent.
var stopsOrGoesOn = []os.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}

// takePending removes a signal that was sent to the process and that no thread has received yet, and reports whether
// there was one.
func takePending(signals ...os.Signal) bool {
	var set uint64
	for _, s := range signals {
		set |= 1 << (s.(unix.Signal) - 1)
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
