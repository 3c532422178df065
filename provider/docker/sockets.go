package docker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
)

// sockets is a provider's knowledge of whether guests can connect to sockets of this process, which are in a folder of the
// sandbox's own, mounted read-only.
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
