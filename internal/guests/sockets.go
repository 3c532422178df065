package guests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fumehood/fumehood/internal/wire/client"
)

// A guest is first reached through the Host. If the service sees this machine's files, the guest then connects to a
// unix socket of this process, which is several times as fast. The socket is in a folder that is mounted read-only. Any
// process in the sandbox can connect to it, so the guest proves that it knows a secret that it received over the first
// connection. If any of this fails, the first connection stays in use.

// move makes a guest connect to a socket.
func (m *Manager) move(ctx context.Context, g *client.Guest) error {
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

// listen creates a socket. Every user who can access the folder may connect to it.
func listen(folder, name string) (net.Listener, error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// A socket's address is limited to 108 bytes (unix(7)), and a folder's path may be longer.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it could not unlink the socket by that address
	s := socket{Listener: l, path: filepath.Join(folder, name)}
	if err := os.Chmod(s.path, 0o666); err != nil { //nolint:gosec // see above
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

type socket struct {
	net.Listener
	path string
}

// Close closes the listener and removes the socket.
func (s socket) Close() error { return errors.Join(s.Listener.Close(), os.Remove(s.path)) }
