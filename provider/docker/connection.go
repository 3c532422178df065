package docker

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/fumehood/fumehood"
)

// Connection returns command lines for a shell and an editor, and the ports as currently published.
func (s *service) Connection(ctx context.Context, user string) (fumehood.Connection, error) {
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return fumehood.Connection{}, err
	}
	if !state.Running {
		return fumehood.Connection{}, state.Unavailable()
	}
	name := s.Info.Container
	shell := []string{cmp.Or(s.sb.Spec.Binary, "docker"), "exec", "-it"}
	if user = cmp.Or(user, s.Info.User); user != "" {
		shell = append(shell, "--user", user)
	}
	conn := fumehood.Connection{
		Container: name, Shell: append(shell, name, s.shell(ctx), "-l"),
		VSCode: []string{"code", "--folder-uri", "vscode-remote://attached-container+" + hex.EncodeToString([]byte(name)) + s.Info.Dir},
	}
	if conn.Ports, err = publishedPorts(s.Ports, state.Ports); err != nil {
		return conn, err
	}
	conn.Ports = append(conn.Ports, s.Forwards.All()...)
	return conn, nil
}

// shell returns bash if the service has it, otherwise sh.
func (s *service) shell(ctx context.Context) string {
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash"} {
		if _, err := s.Files("").Stat(ctx, shell); err == nil {
			return "bash"
		}
	}
	return "sh"
}

// publishedPorts returns the published host port for each requested port. Requests that let the Engine choose the host
// port of the same container port may get the same one.
func publishedPorts(asked, got []fumehood.Port) ([]fumehood.Port, error) {
	ports := []fumehood.Port{} // never nil: an empty list in JSON
	same := func(p, g fumehood.Port) bool {
		return g.Container == p.Container && g.Protocol == cmp.Or(p.Protocol, fumehood.ProtocolTCP)
	}
	fixed := func(g fumehood.Port) bool {
		return slices.ContainsFunc(asked, func(p fumehood.Port) bool { return same(p, g) && p.Host == g.Host })
	}
	for _, p := range asked {
		fits := func(g fumehood.Port) bool { return same(p, g) && (p.Host == g.Host || p.Host == 0 && !fixed(g)) }
		i := slices.IndexFunc(got, func(g fumehood.Port) bool { return fits(g) && !slices.Contains(ports, g) })
		if i < 0 && p.Host == 0 {
			i = slices.IndexFunc(got, fits)
		}
		if i < 0 {
			return nil, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the Engine has not published port %d", p.Container)}
		}
		ports = append(ports, got[i])
	}
	return ports, nil
}
