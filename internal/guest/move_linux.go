package guest

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// moveWithin bounds the wait for the host's proof on a new connection.
const moveWithin = 5 * time.Second

// move connects to a socket of the host. It serves that connection too, or receives a listening socket over it.
func (g *guest) move(s *wire.Stream, req *wire.Move) {
	socket, err := connectTo(string(req.Path), req.Secret)
	switch {
	case !connected(s, err):
	case req.Listen:
		_ = g.takeSocket(socket) // without it the host finds no confirmation
	default:
		g.serveHost(socket)
	}
}

// connectTo connects to a unix socket. The host and this guest prove to each other that they know the secret.
func connectTo(path string, secret []byte) (*wire.Socket, error) {
	fd, err := connectUnix(path, unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return authenticate(fd, secret, moveWithin)
}

// authenticate takes over a connection, and returns it when the host and this guest have proved to each other that they know
// the secret. Otherwise it closes the connection.
func authenticate(fd int, secret []byte, within time.Duration) (*wire.Socket, error) {
	socket, err := wire.NewSocket(fd)
	if err != nil {
		return nil, err
	}
	if err := wire.ProveWithin(socket, wire.Guest, secret, within); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return socket, nil
}
