//go:build !linux

package quiet

import "net"

func quiet(c net.Conn) net.Conn { return c }
