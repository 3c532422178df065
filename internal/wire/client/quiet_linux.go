package client

import (
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// quiet takes a connection over, and wakes nobody in vain where that is possible; see wire.Socket.
func quiet(conn *net.UnixConn) io.ReadWriteCloser {
	raw, err := conn.SyscallConn()
	if err != nil {
		return conn
	}
	fd := -1
	if cerr := raw.Control(func(its uintptr) { fd, err = unix.FcntlInt(its, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil || err != nil {
		return conn
	}
	socket, err := wire.NewSocket(fd)
	if err != nil {
		return conn
	}
	conn.Close()
	return socket
}
