//go:build amd64 || arm64

package native

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var (
	_ provider.Connector = (*service)(nil)
	_ provider.Forwarder = (*service)(nil)
)

// Connection returns the forwarded ports and, for a kept sandbox, a command that opens a shell. There is no container that
// another program could enter.
func (s *service) Connection(ctx context.Context, user string) (fumehood.Connection, error) {
	if err := (unit{s}).Death(ctx).Err; err != nil {
		return fumehood.Connection{}, err
	}
	c := fumehood.Connection{Shell: []string{}, VSCode: []string{}, Ports: append([]fumehood.Port{}, s.Forwards.All()...)}
	if s.sb.Kept() {
		c.Shell = append(c.Shell, "fumehood", "shell", s.sb.Spec.Name)
		if user != "" {
			c.Shell = append(c.Shell, "--user", user)
		}
	}
	return c, nil
}
