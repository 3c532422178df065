package wire

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is an end of a stream socket that is woken only when there is something to read, or room for what waits to be
// written. Go's runtime asks the kernel to be woken by either, always: so each message that the peer reads wakes who has
// sent it, for nothing, and on 2 cores that takes a tenth of the time of a short command. What Go's runtime sees in place
// of the socket are epoll instances, which are ready when they are to be. Its methods may be called by many goroutines at
// once.
type Socket struct {
	fd      int
	in      *os.File // ready when there is something to read
	writing sync.Mutex
	out     *os.File // ready when there is room, while somebody waits for it

	closing sync.Once
	closed  atomic.Bool
	err     error // of closing
}

// NewSocket takes a descriptor over, which must not block. On an error it is closed.
func NewSocket(fd int) (*Socket, error) {
	s := &Socket{fd: fd}
	var err error
	if s.in, err = newEpoll(); err == nil {
		s.out, err = newEpoll()
	}
	if err == nil {
		err = Control(s.in, func(in int) error { return s.add(in, unix.EPOLLIN|unix.EPOLLRDHUP) })
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newEpoll() (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else it is nothing that Go's runtime waits for
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "epoll"), nil
}

// add makes an epoll instance ready by events of the socket.
func (s *Socket) add(epoll int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: events}))
}

// Control calls f with the descriptor of a file or a connection, which stays open meanwhile.
func Control(file syscall.Conn, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = f(int(fd)) })
	return errors.Join(err, ferr)
}

// Reading calls f with the descriptor until it returns true; when it returns false there was nothing to read, and it is
// called again when there is.
func (s *Socket) Reading(f func(fd int) bool) error {
	raw, err := s.in.SyscallConn()
	if err == nil {
		err = raw.Read(func(in uintptr) bool {
			for {
				if f(s.fd) {
					return true
				}
				if !pending(int(in)) {
					return false
				}
			}
		})
	}
	return s.known(err)
}

// pending reports whether an epoll instance has an event, where the kernel has to be asked before each wait.
func pending(epoll int) bool {
	if !forgets() {
		return false
	}
	var events [1]unix.EpollEvent
	n, err := unix.EpollWait(epoll, events[:], 0)
	return n > 0 || errors.Is(err, unix.EINTR)
}

// known makes an error of the epoll instances one that callers of package os know.
func (s *Socket) known(err error) error {
	if err != nil && s.closed.Load() {
		return os.ErrClosed
	}
	return err
}

// Writing calls f with the descriptor until it returns true; when it returns false there was no room, and it is called
// again when there is. One call at a time: others wait.
func (s *Socket) Writing(f func(fd int) bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	done := false
	err := Control(s.out, func(int) error {
		done = f(s.fd)
		return nil
	})
	if done || err != nil {
		return s.known(err)
	}
	raw, err := s.out.SyscallConn()
	if err != nil {
		return s.known(err)
	}
	var aerr error
	waiting := false
	err = raw.Read(func(out uintptr) bool {
		for {
			if done = f(s.fd); !done && !waiting {
				waiting = true
				aerr = s.add(int(out), unix.EPOLLOUT) // at once, should there be room by now
			}
			if done || aerr != nil {
				return true
			}
			if !pending(int(out)) {
				return false
			}
		}
	})
	if waiting && aerr == nil {
		err = errors.Join(err, Control(s.out, func(out int) error {
			return os.NewSyscallError("epoll_ctl", unix.EpollCtl(out, unix.EPOLL_CTL_DEL, s.fd, nil))
		}))
	}
	return s.known(errors.Join(err, aerr))
}

// forgets reports whether the kernel reports an epoll instance as ready again only after somebody has asked it in vain for
// events, as gVisor does. Linux does so for each event; asking it would cost every message a system call.
var forgets = sync.OnceValue(func() bool {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return true
	}
	defer unix.Close(event)
	inner, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return true
	}
	defer unix.Close(inner)
	outer, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return true
	}
	defer unix.Close(outer)
	const edge = 1 << 31 // EPOLLET, which does not fit the constant's type everywhere
	if unix.EpollCtl(inner, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN}) != nil ||
		unix.EpollCtl(outer, unix.EPOLL_CTL_ADD, inner, &unix.EpollEvent{Events: unix.EPOLLIN | edge}) != nil {
		return true
	}
	count, events := [8]byte{1}, [1]unix.EpollEvent{}
	for range 2 {
		if _, err := unix.Write(event, count[:]); err != nil {
			return true
		}
		if n, err := unix.EpollWait(outer, events[:], 0); n != 1 || err != nil {
			return true
		}
		if _, err := unix.Read(event, count[:]); err != nil {
			return true
		}
		count = [8]byte{1}
	}
	return false
})

// Read reads what is there, waiting for it.
func (s *Socket) Read(p []byte) (n int, err error) {
	werr := s.Reading(func(fd int) bool {
		for {
			if n, err = unix.Read(fd, p); !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case werr != nil:
		return 0, werr
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p.
func (s *Socket) Write(p []byte) (written int, err error) {
	werr := s.Writing(func(fd int) bool {
		for written < len(p) {
			var n int
			n, err = unix.SendmsgN(fd, p[written:], nil, nil, unix.MSG_NOSIGNAL)
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				return true
			default:
				written += n
			}
		}
		return true
	})
	if werr != nil {
		return written, werr
	}
	return written, os.NewSyscallError("sendmsg", err)
}

// SetDeadline is as that of an os.File.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.in.SetReadDeadline(t), s.out.SetReadDeadline(t))
}

// Close closes the socket, and ends who waits for it.
func (s *Socket) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		for _, epoll := range []*os.File{s.in, s.out} {
			if epoll != nil {
				s.err = errors.Join(s.err, epoll.Close()) // nobody uses the descriptor any more
			}
		}
		s.err = errors.Join(s.err, os.NewSyscallError("close", unix.Close(s.fd)))
	})
	return s.err
}
