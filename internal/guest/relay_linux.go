package guest

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// relay connects its standard input and output with a resident guest's socket, until either ends. It knows no
// secret, and may run as any user.
func relay(name string, stdin, stdout, stderr *os.File) int {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // else what runs beside it as the same user could trace it
	socket, err := residence(name)
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: connect to the resident guest: "+err.Error()+"\n")
		if errors.Is(err, unix.ECONNREFUSED) {
			return wire.NobodyListens
		}
		return 1
	}
	go func() {
		_, _ = io.Copy(socket, stdin) // its end, however it came, is the host's
		_ = unix.Shutdown(int(socket.Fd()), unix.SHUT_WR)
	}()
	_, _ = io.Copy(stdout, socket) // likewise the guest's
	return 0
}

// residence connects to an abstract unix socket.
func residence(name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "guest"), nil
}
