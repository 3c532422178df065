package engine

import (
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// Rootful reports whether the Engine is known to run as root on this machine: its socket is local, and its peer is
// root.
func (c *Client) Rootful() bool {
	path, ok := strings.CutPrefix(c.Endpoint(), "unix://")
	if !ok {
		return false
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return false
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	root := false
	cerr := raw.Control(func(fd uintptr) {
		peer, perr := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		root = perr == nil && peer.Uid == 0
	})
	return cerr == nil && root
}
