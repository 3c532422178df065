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

// A guest is first reached by the Host's own means. Where the service sees this machine's files, the guest then connects to a
// unix socket of this process, which is several times as fast: the socket is in a folder that is mounted read-only.
// Whatever runs in the sandbox can connect as well, and so the guest proves that it knows a secret that it got by the first
// connection. Where anything of this does not work, that is used on.

// move has a guest connect to a socket.
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

// listen makes a socket that every user may connect to who sees the folder.
func listen(folder, name string) (net.Listener, error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// The address of a socket is short (unix(7): 108 bytes), and a folder's path may be long.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by that address it could not
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

// Close ends the listening and removes the socket.
func (s socket) Close() error { return errors.Join(s.Listener.Close(), os.Remove(s.path)) }
