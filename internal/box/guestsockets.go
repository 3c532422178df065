package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fumehood/fumehood/internal/wire/host"
)

// A guest is first reached through the Unit. If the service sees this machine's files, the guest then connects to a
// unix socket of this process, which is several times as fast. The socket is in a folder that is mounted read-only. Any
// process in the sandbox can connect to it, so the guest proves that it knows a secret that it received over the first
// connection. If any of this fails, the first connection stays in use.

// move makes a guest connect to a socket.
func (m *Guests) move(ctx context.Context, g *host.Guest) error {
	folder := m.cfg.Sockets()
	if folder == "" {
		return nil
	}
	name := strconv.FormatInt(m.sockets.Add(1), 10)
	l, err := listen(folder, name)
	if err != nil {
		return err
	}
	return g.Move(ctx, l, m.cfg.SocketDir+"/"+name)
}

// publish lets later processes on this machine connect to a user's resident guest without the Unit. They find its
// socket in the same folder, so long as the guest lives.
func (m *Guests) publish(ctx context.Context, g *host.Guest, user string) error {
	folder := m.cfg.Sockets()
	if folder == "" {
		return nil
	}
	name, _ := m.residence(user)
	path := filepath.Join(folder, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a dead guest
		return err
	}
	l, err := bind(folder, name)
	if err != nil {
		return err
	}
	if err := g.Publish(ctx, l, m.cfg.SocketDir+"/"+name); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// directWithin bounds the connection to a published socket, after which a relay is used. A guest answers within a few
// milliseconds, unless it is paused.
const directWithin = 2 * time.Second

// direct connects to a user's resident guest by its published socket. It returns errNobody if no guest listens there.
func (m *Guests) direct(ctx context.Context, user string) (*guest, error) {
	folder := m.cfg.Sockets()
	if folder == "" {
		return nil, errNobody
	}
	name, secret := m.residence(user)
	var conn net.Conn
	err := in(folder, name, func(address string) (err error) {
		conn, err = dial(ctx, address)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, errNobody
	}
	if err != nil {
		return nil, err
	}
	rw := host.ResidentConn(conn)
	met, err := host.Meet(ctx, rw, secret)
	if err != nil {
		return nil, errors.Join(err, rw.Close())
	}
	g, err := m.greet(ctx, met)
	if err == nil {
		g.near = true
	}
	return g, err
}

// listening is direct for a Unit without relays. The process that makes a socket rejects connections until the guest has
// taken it. So does a guest that has too many which have not proved themselves. Both last a few milliseconds.
func (m *Guests) listening(ctx context.Context, user string) (*guest, error) {
	for rejected := time.Now(); ; {
		g, err := m.direct(ctx, user)
		if !errors.Is(err, io.EOF) || time.Since(rejected) > directWithin {
			return g, err
		}
		select {
		case <-time.After(connectPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// dial connects to a unix socket. It waits for a place in the backlog, which code in the sandbox may have filled.
func dial(ctx context.Context, address string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", address)
		if !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		select {
		case <-time.After(connectPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// connectPause is the pause between attempts to connect to a socket.
const connectPause = 5 * time.Millisecond

// in calls f with an address of a socket in a folder. A socket's address is limited to 108 bytes (unix(7)), and a
// folder's path may be longer.
func in(folder, name string, f func(address string) error) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
}

// bind creates a socket. Every user who can access the folder may connect to it.
func bind(folder, name string) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := in(folder, name, func(address string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it could not unlink the socket by that address
	path := filepath.Join(folder, name)
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // see above
		return nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	return l, nil
}

// listen creates a socket that Close removes.
func listen(folder, name string) (net.Listener, error) {
	l, err := bind(folder, name)
	if err != nil {
		return nil, err
	}
	return socket{Listener: l, path: filepath.Join(folder, name)}, nil
}

type socket struct {
	net.Listener
	path string
}

// Close closes the listener and removes the socket.
func (s socket) Close() error { return errors.Join(s.Listener.Close(), os.Remove(s.path)) }
