package client

import (
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// quiet takes over a connection, and if possible returns a wire.Socket for it, which avoids useless wakeups.
func quiet(conn *net.UnixConn) io.ReadWriteCloser {
	var fd int
	if err := wire.Control(conn, func(its int) (err error) {
		fd, err = unix.FcntlInt(uintptr(its), unix.F_DUPFD_CLOEXEC, 0)
		return err
	}); err != nil {
		return conn
	}
	socket, err := wire.NewSocket(fd)
	if err != nil {
		return conn
	}
	conn.Close()
	return socket
}
