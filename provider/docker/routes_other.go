//go:build !linux

package docker

import "net/netip"

// hostRoutes returns nil: here the daemon is in a virtual machine, which has routes of its own.
func hostRoutes() []netip.Prefix { return nil }
