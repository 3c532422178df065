package host

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// quiet takes over a connection. If it is a unix socket, quiet returns a wire.Socket for it if possible, which avoids
// useless wakeups.
func quiet(conn net.Conn) io.ReadWriteCloser {
	its, is := conn.(*net.UnixConn)
	if !is {
		return conn
	}
	socket, err := wire.TakeOver(its)
	if err != nil {
		return conn
	}
	return socket
}

// sendFile sends a file descriptor over a unix socket.
func sendFile(conn net.Conn, file *os.File) error {
	its, is := conn.(*net.UnixConn)
	if !is {
		return errors.ErrUnsupported
	}
	return wire.Control(file, func(fd int) error {
		_, _, err := its.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
		return err
	})
}
