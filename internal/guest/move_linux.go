package guest

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// moveWithin bounds the wait for the host's word on a new connection.
const moveWithin = 5 * time.Second

// move connects to a socket of the host's and serves that connection too.
func (g *guest) move(s *wire.Stream, req *wire.Move) {
	var moved wire.Moved
	socket, err := connectTo(string(req.Path), req.Secret)
	if err != nil {
		moved.Failed = err.Error()
	}
	answer(s, moved)
	if err == nil {
		_ = wire.NewConn(socket, wire.Guest, g.handle).Serve() // its end is the host's, however it came
	}
}

// connectTo connects to a unix socket, shows the secret, and waits until that is accepted.
func connectTo(path string, secret []byte) (*wire.Socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	socket, err := wire.NewSocket(fd)
	if err != nil {
		return nil, err
	}
	err = socket.SetDeadline(time.Now().Add(moveWithin))
	if err == nil {
		_, err = socket.Write(secret)
	}
	if err == nil {
		_, err = io.ReadFull(socket, make([]byte, 1))
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	return socket, nil
}
