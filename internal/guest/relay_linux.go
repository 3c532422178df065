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
	fd, err := connectUnix("@"+name, 0)
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: connect to the resident guest: "+err.Error()+"\n")
		if errors.Is(err, unix.ECONNREFUSED) {
			return wire.NobodyListens
		}
		return 1
	}
	socket := os.NewFile(uintptr(fd), "guest")
	go func() {
		_, _ = io.Copy(socket, stdin) // its end, however it came, is the host's
		_ = unix.Shutdown(int(socket.Fd()), unix.SHUT_WR)
	}()
	_, _ = io.Copy(stdout, socket) // likewise the guest's
	return 0
}

// connectUnix connects to a unix socket; "@" begins the name of an abstract one. flags are those of socket(2).
func connectUnix(name string, flags int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0); err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
