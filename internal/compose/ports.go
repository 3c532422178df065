package compose

import (
	"net/netip"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

// ports checks the ports of a service: their number, and that a file alone opens none to other machines.
func (c *checking) ports(svc *types.ServiceConfig) {
	exposed := 0
	for _, ports := range svc.Expose {
		exposed += countPorts(ports)
	}
	for key, n := range map[string]int{"ports": len(svc.Ports), "expose": exposed} {
		if n > fumehood.MaxPorts {
			c.refuse(of(svc, key), "%d ports of one service are too many: %d at most", n, fumehood.MaxPorts)
		}
	}
	if !c.settings.keepPorts {
		return // Apply replaces the address
	}
	for _, port := range svc.Ports {
		if addr, err := netip.ParseAddr(port.HostIP); port.HostIP != "" && (err != nil || !addr.Unmap().IsLoopback()) {
			c.unsafe(of(svc, "ports"), portText(port), "with x-fumehood.keep_ports other machines reach the sandbox at this address")
		}
	}
}
