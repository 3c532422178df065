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

// idle reaps orphans for ever. It takes every signal that can be taken, and does nothing about it: as a
// container's first process the guest then outlives whatever the code under test sends, since the kernel
// keeps SIGKILL and SIGSTOP from inside away from it.
func idle() {
	handleReserved(ignore)
	var g guest // that starts nothing
	onChild(takeSignals(syscall.SIGCHLD), func() { g.reap() })
}

// The kernel's values of SIG_DFL and SIG_IGN.
const (
	byDefault uintptr = iota
	ignore
)

// handleReserved sets how the process handles the signals that Go leaves to C libraries, 32 to 34; signal.Ignore does
// nothing for them.
//
// The kernel drops a signal to a container's first process for which that has no handler. But where its first thread
// blocks the signal at that moment, as Go does while it starts a thread or a process, the kernel ends the process by it
// (complete_signal in kernel/signal.c). So the first process ignores them. Workers go back to the default, since
// programs would inherit that the signals are ignored.
func handleReserved(disposition uintptr) {
	action := [4]uintptr{disposition} // as the kernel has it: handler, flags, restorer, mask
	for s := uintptr(32); s <= 34; s++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

// onChild calls f now, and whenever a signal comes, which may tell that a child has ended, for ever.
func onChild(signals <-chan os.Signal, f func()) {
	for {
		f()
		<-signals
	}
}

// takeSignals has every signal that would end the process sent to a channel that holds one, and more: all that can be
// taken, but for the one that Go's scheduler uses.
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

// stopsOrGoesOn are the signals that tell a guest that it was stopped. Those that stop a process take back a SIGCONT that is
// pending, in the kernel.
var stopsOrGoesOn = []os.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}

// isPending reports whether one of the signals was sent to the process and no thread has received it. Else those that a thread
// has received are handled when it returns: a process that was stopped goes on in all of its threads at once, and one may be
// far ahead of the one that has received the signal.
func isPending(signals ...os.Signal) bool {
	var set uint64
	for _, s := range signals {
		set |= 1 << (s.(unix.Signal) - 1)
	}
	var now unix.Timespec
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(set), 0, 0)
	if errno == 0 {
		return true
	}
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
	return false
}

// handledWithin bounds the wait for a thread that ends before it has handled a signal.
const handledWithin = 100 * time.Millisecond
