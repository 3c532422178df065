package docker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
)

// sockets records whether guests can connect to this process's sockets. Each sandbox has a folder for them, which is
// mounted read-only.
type sockets struct{ off atomic.Bool }

// noSockets disables sockets for all later sandboxes.
func (p *Provider) noSockets(why error) {
	if !p.sockets.off.Swap(true) {
		p.opts.Logger.Debug("guests are reached through the daemon only: they cannot use a socket of this machine", "error", why)
	}
}

// hasSockets reports whether guests can connect to sockets in the sandbox's folder.
func (sb *sandbox) hasSockets() bool {
	return sb.folder != "" && !sb.socketless && runtime.GOOS == "linux" && sb.p.engine.Local() &&
		!sb.p.opts.NoSockets && !sb.p.sockets.off.Load() && sb.serves()
}

// makeSockets creates the folder for the sockets of one service, and returns its path; empty if the service has none.
func (sb *sandbox) makeSockets(service string) string {
	if !sb.hasSockets() {
		return ""
	}
	mounted := sb.socketsFolder(service)
	err := os.Mkdir(mounted, 0o700)
	if err == nil {
		err = os.Chmod(mounted, 0o755) //nolint:gosec // for the sandbox's users; on the host, the parent folder is closed
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
