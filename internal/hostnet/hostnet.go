// Package hostnet knows the networks of this machine: its routes, and the addresses that sandboxes use.
package hostnet

import "net/netip"

// Pools are the address ranges from which the networks of sandboxes get their subnets. The first one with free addresses
// is used. They overlap with the default pools of Docker's daemon only in part.
var Pools = []netip.Prefix{
	netip.MustParsePrefix("10.201.0.0/16"), netip.MustParsePrefix("172.29.0.0/16"), netip.MustParsePrefix("192.168.192.0/18"),
}

// Route is a route of this machine, in any of its tables.
type Route struct {
	// Dst is the destination. It has length 0 for a default route.
	Dst netip.Prefix
	// Local is set if Dst is an address of this machine.
	Local bool
	// Direct is set if Dst is in a network that this machine is part of: no gateway leads to it.
	Direct bool
	// Device is the index of the interface; 0 if there is none, or several.
	Device int
}
