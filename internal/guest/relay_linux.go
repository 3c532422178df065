package guest

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// restWithin bounds how long a relay whose host has gone waits for the guest to end the connection.
const restWithin = time.Second

// relay connects standard input and output to a resident guest's socket, until either side ends. It knows no secret,
// and can run as any user.
func relay(name string, stdin, stdout, stderr *os.File) int {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // otherwise other processes of the same user could trace it
	fd, err := connectUnix("@"+name, 0)
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: connect to the resident guest: "+err.Error()+"\n")
		if errors.Is(err, unix.ECONNREFUSED) {
			return wire.NobodyListens
		}
		return 1
	}
	socket := os.NewFile(uintptr(fd), "guest")
	signal.Ignore(unix.SIGPIPE) // otherwise a write to standard output after the host's end would look like a kill
	received, sent := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = io.Copy(socket, stdin) // the host ends the copy, with or without an error
		_ = unix.Shutdown(int(socket.Fd()), unix.SHUT_WR)
		close(sent)
	}()
	go func() {
		_, _ = io.Copy(stdout, socket) // the guest ends this one
		close(received)
	}()
	select {
	case <-received:
	case <-sent:
		select {
		case <-received:
		case <-time.After(restWithin): // nobody reads standard output
		}
	}
	return 0
}

// connectUnix connects to a unix socket. A name starting with "@" is an abstract one. flags are passed to socket(2).
func connectUnix(name string, flags int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0); err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
