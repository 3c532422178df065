package compose

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"
)

// A network's subnet replaces the host's route to these addresses: what the host sends to them goes to the sandbox. So
// files may use only private subnets to which the host has no other route.

// private are the ranges of RFC 1918 and the unique local addresses of IPv6.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("fc00::/7"),
}

// isPrivate reports whether all addresses of a subnet are private.
func isPrivate(subnet netip.Prefix) bool {
	return slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Bits() <= subnet.Bits() && p.Contains(subnet.Addr()) })
}

// routeTo returns the first route that a subnet overlaps with, ignoring default routes.
func routeTo(subnet netip.Prefix, routes []netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(routes, func(r netip.Prefix) bool { return r.Overlaps(subnet) && !IsDefault(r) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return routes[i], true
}

// IsDefault reports whether a route is the default route or a part of it, that is, wider than any private range.
func IsDefault(route netip.Prefix) bool {
	if route.Addr().Is4() {
		return route.Bits() < 8
	}
	return route.Bits() < 7
}

// pools calls f with each address pool of the networks that the project creates.
func (p *Project) pools(f func(keys []string, pool *types.IPAMPool)) {
	for _, key := range slices.Sorted(maps.Keys(p.as.Networks)) {
		n := p.as.Networks[key]
		if bool(n.External) {
			continue
		}
		for i, pool := range n.Ipam.Config {
			f([]string{"networks", key, "ipam", "config", strconv.Itoa(i)}, pool)
		}
	}
}

// HasSubnets reports whether the project's files set subnets of networks.
func (p *Project) HasSubnets() bool {
	has := false
	p.pools(func(_ []string, pool *types.IPAMPool) { has = has || pool.Subnet != "" })
	return has
}

// CheckRoutes rejects subnets in the project's files that overlap with a route of the host, unless allow is set. routes
// must not include those of the daemon's networks; the Engine rejects overlaps with these. It changes only the
// project's notes, and must be called only once.
func (p *Project) CheckRoutes(routes []netip.Prefix, allow bool) error {
	c := &checking{Project: p, allow: allow}
	p.pools(func(keys []string, pool *types.IPAMPool) {
		subnet, err := netip.ParsePrefix(pool.Subnet)
		if err != nil { // rejected before, or not set
			return
		}
		if route, ok := routeTo(subnet, routes); ok {
			c.unsafe(append(keys, "subnet"), pool.Subnet, fmt.Sprintf("this machine has a route to %s, and would reach the sandbox instead", route))
		}
	})
	return c.err()
}

// pool checks the addresses of a network.
func (c *checking) pool(keys []string, pool *types.IPAMPool) {
	at := func(key string) []string { return append(slices.Clip(keys), key) }
	if pool.Subnet == "" {
		return
	}
	subnet, err := netip.ParsePrefix(pool.Subnet)
	if err != nil {
		c.refuse(at("subnet"), "%q is not a subnet such as 10.5.0.0/24", pool.Subnet)
		return
	}
	subnet = subnet.Masked()
	switch {
	case !isPrivate(subnet):
		c.unsafe(at("subnet"), pool.Subnet, "it is not private: use a part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7")
	case subnet.Addr().Is4() && subnet.Bits() < 16, subnet.Addr().Is6() && subnet.Bits() < 48:
		c.unsafe(at("subnet"), pool.Subnet, "it takes addresses that others need: use at most a /16, or a /48 of IPv6")
	}
	if r := pool.IPRange; r != "" {
		if p, err := netip.ParsePrefix(r); err != nil || p.Bits() < subnet.Bits() || !subnet.Contains(p.Addr()) {
			c.refuse(at("ip_range"), "%q is not a part of the subnet %s", r, subnet)
		}
	}
	inside := func(keys []string, address string) {
		if a, err := netip.ParseAddr(address); err != nil || !subnet.Contains(a) {
			c.refuse(keys, "%q is not an address of the subnet %s", address, subnet)
		}
	}
	if pool.Gateway != "" {
		inside(at("gateway"), pool.Gateway)
	}
	for _, name := range slices.Sorted(maps.Keys(pool.AuxiliaryAddresses)) {
		inside(append(at("aux_addresses"), name), pool.AuxiliaryAddresses[name])
	}
}
