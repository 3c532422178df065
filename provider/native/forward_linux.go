//go:build amd64 || arm64

package native

import (
	"context"
	"net/netip"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var (
	_ provider.Connector = (*service)(nil)
	_ provider.Forwarder = (*service)(nil)
)

// Forward listens on a port of the host. The guest of the service's user connects to the service's port.
func (s *service) Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error) {
	if err := (host{s}).Death(ctx).Err; err != nil {
		return fumehood.Port{}, err
	}
	var addresses []netip.Addr
	if s.sb.network != nil {
		addresses = append(addresses, address)
	}
	return s.forwards.Listen(ctx, p, addresses...)
}

// publish forwards the ports of a spec.
func (s *service) publish(ctx context.Context, ports []fumehood.Port) error {
	for _, p := range ports {
		if _, err := s.Forward(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Connection returns the forwarded ports. There is no container that another program could enter.
func (s *service) Connection(ctx context.Context, _ string) (fumehood.Connection, error) {
	if err := (host{s}).Death(ctx).Err; err != nil {
		return fumehood.Connection{}, err
	}
	return fumehood.Connection{Shell: []string{}, VSCode: []string{}, Ports: append([]fumehood.Port{}, s.forwards.All()...)}, nil
}
