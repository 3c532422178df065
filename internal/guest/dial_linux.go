package guest

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// dialWithin bounds one attempt to connect to an address of the container.
const dialWithin = 5 * time.Second

// dial connects to a TCP port at the first address that accepts the connection. It then copies bytes between the
// stream and the connection in both directions.
func (g *guest) dial(s *wire.Stream, req *wire.Dial) {
	socket, err := dialAny(req)
	if !connected(s, err) {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.CopyBuffer(channelWriter{s, wire.Stdout}, struct{ io.Reader }{socket}, make([]byte, dialBuffer))
		if err == nil {
			_ = s.SendEnd(wire.Stdout) // the host may be gone
			return
		}
		s.Close()
	}()
	passOn(s, socket)
	_ = socket.SetReadDeadline(time.Now()) // the host does not read any further output
	<-sent
	_ = socket.Close()
}

// connected sends the outcome of a connection attempt to the host, and reports whether it succeeded.
func connected(s *wire.Stream, err error) bool {
	var c wire.Connected
	if err != nil {
		c.Failed = err.Error()
	}
	answer(s, c)
	return err == nil
}

// dialBuffer is the buffer size for reading from a socket, in bytes.
const dialBuffer = 32 << 10

// lingerWithin bounds the time to write data received before the host closed the stream. A program may never read it.
const lingerWithin = 5 * time.Second

// passOn copies data from the stream to the socket. At the end of the data it shuts down that direction. It returns
// when the host has closed the stream, or the program the connection.
func passOn(s *wire.Stream, socket *os.File) {
	came := newQueue()
	go func() { // runs until either side closes the stream
		defer came.close()
		for {
			ev, err := s.Receive()
			switch {
			case err != nil:
				_ = socket.SetWriteDeadline(time.Now().Add(lingerWithin)) // fails if the socket is already closed
				return
			case ev.Type == wire.Data && ev.Channel == wire.Stdin:
				came.put(piece{data: ev.Payload})
			case ev.Type == wire.End && ev.Channel == wire.Stdin:
				came.put(piece{})
			}
		}
	}()
	for {
		p, ok := came.take()
		if !ok {
			return
		}
		var err error
		if len(p.data) > 0 {
			_, err = socket.Write(p.data)
			s.Consume(len(p.data))
		} else {
			err = wire.Control(socket, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
		}
		if err != nil {
			return
		}
	}
}

func dialAny(req *wire.Dial) (*os.File, error) {
	var errs []error
	for _, a := range req.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return nil, err
		}
		socket, err := connect(netip.AddrPortFrom(addr, req.Port), unix.SOCK_STREAM)
		if err == nil {
			return socket, nil
		}
		errs = append(errs, fmt.Errorf("connect to %v: %w", netip.AddrPortFrom(addr, req.Port), err))
	}
	if len(errs) == 0 {
		return nil, errors.New("no address to connect to")
	}
	return nil, errors.Join(errs...)
}

// connect creates a socket of the given type and connects it to an address.
func connect(to netip.AddrPort, socketType int) (*os.File, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, socketType|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "socket")
	if err := establish(socket, addr); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return socket, nil
}

// establish connects a non-blocking socket, within dialWithin.
func establish(socket *os.File, to unix.Sockaddr) error {
	if err := socket.SetWriteDeadline(time.Now().Add(dialWithin)); err != nil {
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	err = raw.Write(func(fd uintptr) bool { // called again on every event
		cerr = unix.Connect(int(fd), to)
		return !errors.Is(cerr, unix.EINPROGRESS) && !errors.Is(cerr, unix.EALREADY)
	})
	switch {
	case err != nil:
		return err
	case cerr != nil && !errors.Is(cerr, unix.EISCONN):
		return cerr
	}
	return socket.SetWriteDeadline(time.Time{})
}
