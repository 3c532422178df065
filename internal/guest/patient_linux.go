package guest

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// lookEvery is how often who reads or writes in vain looks at a file that is closed or whose deadline is set meanwhile.
const lookEvery = 50 * time.Millisecond

// patient is our side of a pipe or a terminal of a command. The kernel may refuse to watch it for Go: to a user whose
// watches are used up, or when the container has no memory left (epoll_ctl(2): ENOSPC, ENOMEM). Then a thread waits.
type patient struct {
	file  *os.File
	until atomic.Int64 // the deadline of reads, in nanoseconds since 1970; 0 for none
}

// newPatient takes over a descriptor that does not block.
func newPatient(fd int, name string) *patient { return &patient{file: os.NewFile(uintptr(fd), name)} }

func (p *patient) Read(b []byte) (int, error) {
	for {
		n, err := p.file.Read(b)
		if !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		if until := p.until.Load(); until != 0 && time.Now().UnixNano() >= until {
			return 0, os.ErrDeadlineExceeded
		}
		if err := p.look(unix.POLLIN); err != nil {
			return 0, err
		}
	}
}

func (p *patient) Write(b []byte) (written int, err error) {
	for {
		n, err := p.file.Write(b[written:])
		written += n
		if !errors.Is(err, unix.EAGAIN) {
			return written, err
		}
		if err := p.look(unix.POLLOUT); err != nil {
			return written, err
		}
	}
}

// look waits until the file may be read or written, but no longer than lookEvery.
func (p *patient) look(events int16) error {
	return wire.Control(p.file, func(fd int) error {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(lookEvery.Milliseconds())) //nolint:gosec // a descriptor
		return nil
	})
}

// readUntil ends reads at a time; never, if that is zero.
func (p *patient) readUntil(t time.Time) {
	until := int64(0)
	if !t.IsZero() {
		until = t.UnixNano()
	}
	p.until.Store(until)
	_ = p.file.SetReadDeadline(t)
}

func (p *patient) Close() error { return p.file.Close() }
