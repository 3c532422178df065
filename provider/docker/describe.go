package docker

import (
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// recordNetwork records which network the sandbox has, and which of its ports are reachable.
func (sb *sandbox) recordNetwork() {
	n := provider.NetworkAccess{Network: sb.Spec.Network.Mode, Egress: fumehood.NetworkNone, Ports: map[string][]fumehood.Port{}}
	switch {
	case sb.Spec.Compose != nil && sb.project.Internal():
		n.Network = "internal"
	case sb.Spec.Compose != nil:
		n.Network, n.Egress = "project", fumehood.EgressInternet
	case n.Network == "":
		n.Network = fumehood.NetworkNone
	case n.Network == fumehood.NetworkBridge, n.Network == fumehood.NetworkHost:
		n.Egress = fumehood.EgressInternet
	case n.Network != fumehood.NetworkNone:
		n.Egress = "unknown"
	}
	for _, subnet := range sb.subnets {
		n.Subnets = append(n.Subnets, subnet.String())
	}
	for _, s := range sb.services {
		n.Ports[s.Name] = slices.Concat(s.Ports, s.Service.Service.Forward)
	}
	sb.Rec.Network(n)
}
