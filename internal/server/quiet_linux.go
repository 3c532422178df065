package server

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// conn is a connection of a unix socket. Its wire.Socket avoids wakeups when the client has read an answer, and of
// Go's monitoring thread, which take a good part of a short command's time. It has three descriptors.
type conn struct {
	*wire.Socket
	local, remote net.Addr
	writeBy       atomic.Pointer[time.Time] // nil without a deadline
}

// quiet takes over a connection of a unix socket. If it cannot, it returns c.
func quiet(c net.Conn) net.Conn {
	its, is := c.(*net.UnixConn)
	if !is {
		return c
	}
	local, remote := its.LocalAddr(), its.RemoteAddr()
	socket, err := wire.TakeOver(its)
	if err != nil {
		return c
	}
	return &conn{Socket: socket, local: local, remote: remote}
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Socket.Read(p)
	return n, c.opError("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	if by := c.writeBy.Load(); by != nil && !time.Now().Before(*by) { // the socket checks only when it waits
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	}
	n, err := c.Socket.Write(p)
	return n, c.opError("write", err)
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.opError("set", c.Socket.SetReadDeadline(t))
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	by := &t
	if t.IsZero() {
		by = nil
	}
	c.writeBy.Store(by)
	return c.opError("set", c.Socket.SetWriteDeadline(t))
}

// opError returns an error as package net does. Package net/http sends no answer after an error of a connection, which it
// knows by its type.
func (c *conn) opError(op string, err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return err
	case errors.Is(err, os.ErrClosed):
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// hungUp reports whether the client has ended its direction of a connection, or all of it, also while there is data to read. With
// TLS, this is that of the connection below.
func hungUp(c net.Conn) bool {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	switch c := c.(type) {
	case *conn:
		return c.HungUp()
	case syscall.Conn:
		return wire.Control(c, wire.HungUp) != nil
	}
	return false
}
