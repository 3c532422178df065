package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/hostnet"
)

// With its default configuration, a daemon has addresses for only about 30 networks. So networks of projects get small
// subnets from pools of ours. Subnets in use are found in the daemon's networks and, if the daemon is on this machine,
// in the routes. If two processes choose the same subnet, the daemon rejects the second one, which tries another.

// minSubnet is the minimum size of a subnet, in addresses.
const minSubnet = 16

// subnets records the subnets that a provider's sandboxes hold.
type subnets struct {
	mu   sync.Mutex
	held map[netip.Prefix]bool
}

// take returns a free subnet for each size, in addresses.
func (s *subnets) take(sizes []int, used []netip.Prefix) ([]netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for held := range s.held {
		used = append(used, held)
	}
	var taken []netip.Prefix
	for _, size := range sizes {
		free, ok := freeSubnet(size, used)
		if !ok {
			return nil, &fumehood.Error{
				Op: "choose a subnet", Class: fumehood.ErrLimit, Err: errors.New("no addresses are left for networks of sandboxes"),
				Hint: "remove networks that are not used, with `fumehood cleanup` or `docker network prune`",
			}
		}
		taken, used = append(taken, free), append(used, free)
	}
	if s.held == nil {
		s.held = map[netip.Prefix]bool{}
	}
	for _, t := range taken {
		s.held[t] = true
	}
	return taken, nil
}

func (s *subnets) release(all []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range all {
		delete(s.held, p)
	}
}

// freeSubnet returns a subnet of at least size addresses that does not overlap with used ones. It starts at a random
// position, so that processes rarely choose the same subnet.
func freeSubnet(size int, used []netip.Prefix) (netip.Prefix, bool) {
	hostBits := bits.Len(uint(max(size, minSubnet) - 1))
	for _, pool := range hostnet.Pools {
		n := 1 << max(0, 32-hostBits-pool.Bits())
		if 32-hostBits < pool.Bits() {
			continue
		}
		start := rand.IntN(n) //nolint:gosec // not for secrecy
		for i := range n {
			subnet := subnetAt(pool, hostBits, (start+i)%n)
			if !overlapsAny(subnet, used) {
				return subnet, true
			}
		}
	}
	return netip.Prefix{}, false
}

// subnetAt returns the i-th subnet of a pool with hostBits bits for hosts.
func subnetAt(pool netip.Prefix, hostBits, i int) netip.Prefix {
	base := pool.Addr().As4()
	binary.BigEndian.PutUint32(base[:], binary.BigEndian.Uint32(base[:])+uint32(i)<<hostBits) //nolint:gosec // within the pool
	return netip.PrefixFrom(netip.AddrFrom4(base), 32-hostBits)
}

func overlapsAny(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if p.Overlaps(u) {
			return true
		}
	}
	return false
}

// chooseSubnets takes a subnet for each network of the sandbox, unless it already has them.
func (sb *sandbox) chooseSubnets(ctx context.Context) error {
	sizes := sb.project.NetworksNeeded()
	if sb.subnets != nil || len(sizes) == 0 {
		return nil
	}
	used, err := sb.p.usedSubnets(ctx)
	if err == nil {
		sb.subnets, err = sb.p.subnets.take(sizes, used)
	}
	return err
}

// usedSubnets returns the subnets of the daemon's networks and, if the daemon is on this machine, the destinations of
// its routes.
func (p *Provider) usedSubnets(ctx context.Context) ([]netip.Prefix, error) {
	used, err := p.engine.Subnets(ctx)
	if err != nil || !p.engine.Local() {
		return used, err
	}
	return append(used, hostRoutes()...), nil
}

// checkRoutes rejects subnets in the project's files that overlap with routes of this machine, if the daemon is on it.
func (sb *sandbox) checkRoutes(ctx context.Context) error {
	if !sb.project.HasSubnets() || !sb.p.engine.Local() {
		return nil
	}
	networks, err := sb.p.engine.Subnets(ctx)
	if err != nil {
		return err
	}
	routes := slices.DeleteFunc(hostRoutes(), func(r netip.Prefix) bool {
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Bits() <= r.Bits() && n.Contains(r.Addr()) })
	})
	return sb.project.CheckRoutes(routes, sb.Spec.Compose.AllowUnsafe)
}

// hostRoutes returns the destinations of this machine's routes but its default ones, and its own addresses. It returns
// nil if they cannot be read.
func hostRoutes() (all []netip.Prefix) {
	routes, err := hostnet.Routes()
	if err != nil {
		return nil
	}
	for _, r := range routes {
		if !compose.IsDefault(r.Dst) {
			all = append(all, r.Dst)
		}
	}
	return all
}
