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
	if s.config.Resolver.IsValid() { // the sandbox has a network
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

// Connection returns the forwarded ports and, for a kept sandbox, a command that opens a shell. There is no container that
// another program could enter.
func (s *service) Connection(ctx context.Context, user string) (fumehood.Connection, error) {
	if err := (host{s}).Death(ctx).Err; err != nil {
		return fumehood.Connection{}, err
	}
	c := fumehood.Connection{Shell: []string{}, VSCode: []string{}, Ports: append([]fumehood.Port{}, s.forwards.All()...)}
	if s.sb.kept.Load() {
		c.Shell = append(c.Shell, "fumehood", "shell", s.sb.name)
		if user != "" {
			c.Shell = append(c.Shell, "--user", user)
		}
	}
	return c, nil
}
