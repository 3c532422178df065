package wire

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is a stream socket that wakes its users only when it has data to read, or space for a waiting write. Go's
// runtime always registers for both events. So each message that the peer reads would wake its sender in vain, which
// takes a tenth of the time of a short command on 2 cores. Socket gives Go's runtime epoll instances to wait for
// instead of the socket itself. Its methods may be called concurrently.
type Socket struct {
	fd      int
	in      *os.File // ready when there is data to read
	writing sync.Mutex

	mu       sync.Mutex // for the following
	out      *os.File   // ready when there is space, while a write waits; nil until the first one waits
	deadline time.Time  // of writes, for out

	accepts  bool         // Read accepts file descriptors
	accepted atomic.Int32 // one more than the file descriptor that came with the bytes read last; 0 for none

	closing sync.Once
	closed  atomic.Bool
	err     error // of closing
}

// NewSocket takes over a non-blocking file descriptor. On an error it closes the descriptor.
func NewSocket(fd int) (*Socket, error) {
	s := &Socket{fd: fd}
	var err error
	if s.in, err = newEpoll(); err == nil {
		err = Control(s.in, func(in int) error { return s.register(in, unix.EPOLLIN|unix.EPOLLRDHUP) })
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// TakeOver returns a Socket for a connection, which it closes. On an error, the connection stays as it was.
func TakeOver(conn interface {
	syscall.Conn
	io.Closer
},
) (*Socket, error) {
	var fd int
	if err := Control(conn, func(old int) (err error) {
		fd, err = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 0)
		return err
	}); err != nil {
		return nil, err
	}
	s, err := NewSocket(fd)
	if err == nil {
		_ = conn.Close() // it has another descriptor of the same socket
	}
	return s, err
}

func newEpoll() (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // Go's runtime waits only for non-blocking files
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "epoll"), nil
}

// register registers events of the socket with an epoll instance.
func (s *Socket) register(epoll int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: events}))
}

// Control calls f with the file descriptor of a file or a connection, which stays open during the call.
func Control(file syscall.Conn, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = f(int(fd)) })
	return errors.Join(err, ferr)
}

// Reading calls f with the file descriptor until f returns true. f returns false if there was no data to read, and is
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
	return s.closedError(err)
}

// HungUp returns io.EOF if the peer of a socket has ended its direction or all of the connection, also while there is data to
// read.
func HungUp(fd int) error {
	sockets := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // the kernel's descriptors have 31 bits
	if n, err := unix.Poll(sockets, 0); n > 0 && err == nil {
		return io.EOF
	}
	return nil
}

// HungUp is HungUp for the socket. It also reports one that is closed.
func (s *Socket) HungUp() bool {
	return Control(s.in, func(int) error { return HungUp(s.fd) }) != nil // Close waits for it
}

// pending reports whether an epoll instance has an event. It asks only on kernels that need this before each wait.
func pending(epoll int) bool {
	if !forgets() {
		return false
	}
	var events [1]unix.EpollEvent
	n, err := unix.EpollWait(epoll, events[:], 0)
	return n > 0 || errors.Is(err, unix.EINTR)
}

// closedError turns an error of the epoll instances into os.ErrClosed if the socket was closed.
func (s *Socket) closedError(err error) error {
	if err != nil && s.closed.Load() {
		return os.ErrClosed
	}
	return err
}

// Writing calls f with the file descriptor until f returns true. f returns false if there was no space, and is called
// again when there is. Concurrent calls wait for each other.
func (s *Socket) Writing(f func(fd int) bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	done := false
	err := Control(s.in, func(int) error { // Close waits for it
		done = f(s.fd)
		return nil
	})
	if done || err != nil {
		return s.closedError(err)
	}
	out, err := s.space()
	if err != nil {
		return err
	}
	raw, err := out.SyscallConn()
	if err != nil {
		return s.closedError(err)
	}
	var aerr error
	waiting := false
	err = raw.Read(func(out uintptr) bool {
		for {
			if done = f(s.fd); !done && !waiting {
				waiting = true
				aerr = s.register(int(out), unix.EPOLLOUT) // ready at once if there is space by now
			}
			if done || aerr != nil {
				return true
			}
			if !pending(int(out)) {
				return false
			}
		}
	})
	var rerr error
	if waiting && aerr == nil {
		rerr = Control(out, func(out int) error {
			return os.NewSyscallError("epoll_ctl", unix.EpollCtl(out, unix.EPOLL_CTL_DEL, s.fd, nil))
		})
	}
	return s.closedError(cmp.Or(err, aerr, rerr)) // one error: a joined one is no timeout
}

// space returns the epoll instance of writes. Few connections ever need it.
func (s *Socket) space() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, os.ErrClosed
	}
	if s.out != nil {
		return s.out, nil
	}
	out, err := newEpoll()
	if err != nil {
		return nil, err
	}
	if err := out.SetReadDeadline(s.deadline); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	s.out = out
	return out, nil
}

// forgets reports whether the kernel signals readiness of an epoll instance again only after an empty epoll_wait, as
// gVisor does. Linux signals each event, and the extra call would cost each message a system call.
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
	const edge = 1 << 31 // EPOLLET; the constant's type differs between architectures
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

// Read waits for data and reads it.
func (s *Socket) Read(p []byte) (n int, err error) {
	werr := s.Reading(func(fd int) bool {
		for {
			if n, err = s.receive(fd, p); !errors.Is(err, unix.EINTR) {
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

// receive reads once. Unless Read accepts file descriptors, the kernel drops those that the peer sends.
func (s *Socket) receive(fd int, p []byte) (int, error) {
	if !s.accepts {
		return RawRead(fd, p)
	}
	var rights [fileSpace]byte
	n, size, err := RawReceive(fd, p, rights[:])
	if err != nil || size == 0 {
		return n, err
	}
	files := filesIn(rights[:size])
	if len(files) == 1 {
		s.keep(files[0])
		return n, nil
	}
	for _, file := range files { // of a peer that sends more than one
		closeFile(file)
	}
	return n, nil
}

// fileSpace is the size of a control message with one file descriptor, in bytes. Padding leaves space for a second.
const fileSpace = unix.SizeofCmsghdr + 8

// filesIn returns the file descriptors in control messages.
func filesIn(control []byte) (files []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

// keep stores a received file descriptor, and closes the one that nobody has taken.
func (s *Socket) keep(fd int) {
	if old := int(s.accepted.Swap(int32(fd)+1)) - 1; old >= 0 { //nolint:gosec // the kernel's descriptors have 31 bits
		closeFile(old)
	}
}

// AcceptFiles makes later calls of Read accept file descriptors, one with each call.
func (s *Socket) AcceptFiles() { s.accepts = true }

// TakeFile returns the file descriptor that came with the bytes read last, or -1. The caller must close it.
func (s *Socket) TakeFile() int { return int(s.accepted.Swap(0)) - 1 }

// WriteFile writes all of p. A file descriptor goes with its first byte.
func (s *Socket) WriteFile(p []byte, file int) error {
	sent := 0
	var err error
	werr := s.Writing(func(fd int) bool {
		for {
			sent, err = RawSend(fd, p, unix.UnixRights(file))
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case werr != nil:
		return werr
	case err != nil:
		return os.NewSyscallError("sendmsg", err)
	}
	_, err = s.Write(p[sent:])
	return err
}

// Write writes all of p.
func (s *Socket) Write(p []byte) (written int, err error) {
	werr := s.Writing(func(fd int) bool {
		for written < len(p) {
			var n int
			n, err = RawSend(fd, p[written:], nil)
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

// SetDeadline works like that of os.File.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline works like that of os.File.
func (s *Socket) SetReadDeadline(t time.Time) error { return s.in.SetReadDeadline(t) }

// SetWriteDeadline works like that of os.File.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.out == nil {
		return nil
	}
	return s.out.SetReadDeadline(t)
}

// CloseWrite ends the stream to the peer, which can still send.
func (s *Socket) CloseWrite() error {
	return s.closedError(Control(s.in, func(int) error {
		return os.NewSyscallError("shutdown", unix.Shutdown(s.fd, unix.SHUT_WR))
	}))
}

// Close closes the socket and unblocks pending calls. It may be called more than once.
func (s *Socket) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed.Store(true)
		out := s.out
		s.mu.Unlock()
		for _, epoll := range []*os.File{s.in, out} {
			if epoll != nil {
				s.err = errors.Join(s.err, epoll.Close()) // returns when no call uses it any more
			}
		}
		s.err = errors.Join(s.err, os.NewSyscallError("close", unix.Close(s.fd)))
		if fd := s.TakeFile(); fd >= 0 {
			closeFile(fd)
		}
	})
	return s.err
}
