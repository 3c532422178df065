package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// A guest is first reached through the daemon. Where the daemon sees this machine's files, the guest then
// connects to a unix socket of this process, which is several times as fast: the socket is in a folder of
// the sandbox's own, which is mounted read-only. Whatever runs in the sandbox can connect as well, and
// so the guest shows a secret that it got through the daemon. Where anything of this does not work, the
// first connection is used on.

// sockets is a provider's knowledge of whether that works.
type sockets struct{ off atomic.Bool }

// noSockets makes sandboxes do without from now on.
func (p *Provider) noSockets(why error) {
	if !p.sockets.off.Swap(true) {
		p.opts.Logger.Debug("guests are reached through the daemon only: they cannot use a socket of this machine", "error", why)
	}
}

// hasSockets says whether guests can connect to sockets in the sandbox's folder.
func (sb *sandbox) hasSockets() bool {
	return sb.folder != "" && !sb.socketless && runtime.GOOS == "linux" && sb.p.engine.Local() &&
		!sb.p.opts.NoSockets && !sb.p.sockets.off.Load() && sb.serves() && !sb.spec.Keep
}

// makeSockets makes the folder with the sockets of one service, and returns it; empty where there are none.
func (sb *sandbox) makeSockets(service string) string {
	if !sb.hasSockets() {
		return ""
	}
	mounted := sb.socketsFolder(service)
	err := os.Mkdir(mounted, 0o700)
	if err == nil {
		err = os.Chmod(mounted, 0o755) //nolint:gosec // the sandbox's users are to reach it, in their mount of it; here the folder above is closed
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		sb.p.noSockets(err)
		return ""
	}
	return mounted
}

func (sb *sandbox) socketsFolder(service string) string {
	return filepath.Join(sb.folder, "sockets-"+service)
}

// move has a guest connect to a socket.
func (g *guests) move(ctx context.Context, guest *client.Guest) error {
	if !g.svc.sb.hasSockets() {
		return nil
	}
	name := strconv.FormatInt(g.sockets.Add(1), 10)
	l, err := listen(g.svc.sb.socketsFolder(g.svc.Name), name)
	if err != nil {
		return err
	}
	return guest.Move(ctx, l, compose.SocketDir+"/"+name)
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
