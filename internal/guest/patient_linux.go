package guest

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// lookEvery bounds how long a blocked read or write takes to notice that the file was closed or its deadline set.
const lookEvery = 50 * time.Millisecond

// patient is our side of a command's pipe or terminal. The kernel may refuse to add it to Go's poller: the user may
// have reached the limit on watches, or the container its memory limit (epoll_ctl(2): ENOSPC, ENOMEM). A thread then
// polls it.
type patient struct {
	file  *os.File
	until atomic.Int64 // the read deadline, in nanoseconds since 1970; 0 for none
}

// newPatient takes over a non-blocking file descriptor.
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

// look waits until the file is readable or writable, or lookEvery has passed.
func (p *patient) look(events int16) error {
	return wire.Control(p.file, func(fd int) error {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(lookEvery.Milliseconds())) //nolint:gosec // a descriptor
		return nil
	})
}

// readUntil sets the deadline of reads. The zero time means no deadline.
func (p *patient) readUntil(t time.Time) {
	until := int64(0)
	if !t.IsZero() {
		until = t.UnixNano()
	}
	p.until.Store(until)
	_ = p.file.SetReadDeadline(t)
}

func (p *patient) Close() error { return p.file.Close() }
