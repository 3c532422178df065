//go:build !linux

package host

import (
	"errors"
	"io"
	"net"
	"os"
)

// quiet returns the connection as it is.
func quiet(conn net.Conn) io.ReadWriteCloser { return conn }

// sendFile returns errors.ErrUnsupported.
func sendFile(net.Conn, *os.File) error { return errors.ErrUnsupported }
