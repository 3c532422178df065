package guest

import (
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// caught has the eventfd that counts each signal, by its number. onSignal, which is in assembly, reads it.
var caught [65]int32

// The addresses of the handler, and of what it returns to; 0 where the kernel provides that.
var onSignal, afterSignal uintptr

// The kernel's flags of an action. SA_RESTORER is defined where a program must provide what a handler returns to.
const (
	onStack  = 0x08000000
	restart  = 0x10000000
	restorer = 0x04000000
)

// catch makes the returned file count signals, as an eventfd. Package os/signal would take three threads, of each guest.
// A program that this one starts has the default action for them.
func catch(signals ...unix.Signal) (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	action := [4]uintptr{onSignal, onStack | restart, afterSignal, ^uintptr(0)} // handler, flags, restorer, mask
	if afterSignal != 0 {
		action[1] |= restorer
	}
	for _, s := range signals {
		caught[s] = int32(fd) //nolint:gosec // a descriptor
		act(s, &action)
	}
	return os.NewFile(uintptr(fd), "signals"), nil //nolint:gosec // not negative
}

// act sets the action of a signal, as the kernel's struct.
func act(s unix.Signal, action *[4]uintptr) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(action)), 0, 8, 0, 0)
}

// lastSignal knows when the last of some caught signals came.
type lastSignal struct {
	signals *os.File
	mu      sync.Mutex
	at      time.Time
}

// watch notices signals until the file is closed.
func (l *lastSignal) watch() {
	raw, err := l.signals.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // until Close
		l.notice(int(fd)) //nolint:gosec // a descriptor
		return false
	})
}

func (l *lastSignal) notice(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var count [8]byte
	if n, _ := unix.Read(fd, count[:]); n == len(count) {
		l.at = time.Now()
	}
}

// time returns when the last signal came; the zero time for none.
func (l *lastSignal) time() time.Time {
	_ = wire.Control(l.signals, func(fd int) error { // it is open
		l.notice(fd)
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}
