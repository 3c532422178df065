package guest

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// idle reaps orphans for ever. It takes every signal that can be taken, and does nothing about it: as a
// container's first process the guest then outlives whatever the code under test sends, since the kernel
// keeps SIGKILL and SIGSTOP from inside away from it.
func idle() {
	handleReserved(ignore)
	onChild(takeSignals(syscall.SIGCHLD), reap)
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

// reap takes the status of every child that has ended.
func reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 {
			return
		}
	}
}

// selfTest says what the sandbox's isolation looks like from inside: one line of network devices other
// than the loopback, and one of what a connection to the outside meets. It returns 0 when both show that
// there is no network, else 1.
func selfTest(w io.Writer) int {
	devices, err := networkDevices()
	if err != nil {
		devices = []string{"unknown: " + err.Error()}
	}
	code := 0
	_, _ = io.WriteString(w, "network devices:")
	for _, d := range devices {
		_, _ = io.WriteString(w, " "+d)
		code = 1
	}
	connected := connect([4]byte{192, 0, 2, 1}, 80) // TEST-NET-1 of RFC 5737: nobody's address
	_, _ = io.WriteString(w, "\nconnect: "+connected.Error()+"\n")
	if !errors.Is(connected, syscall.ENETUNREACH) {
		code = 1
	}
	return code
}

var errConnected = errors.New("the network can be reached")

// connect tells what the kernel says to a connection to an address, without waiting for an answer.
func connect(addr [4]byte, port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: addr})
	if err == nil || errors.Is(err, syscall.EINPROGRESS) {
		return errConnected
	}
	return err
}

// networkDevices lists the devices other than the loopback from /proc/net/dev.
func networkDevices() ([]string, error) {
	dev, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(dev)) {
		name, _, ok := strings.Cut(line, ":") // headings have none
		if name = strings.TrimSpace(name); ok && name != "lo" {
			names = append(names, name)
		}
	}
	return names, nil
}
