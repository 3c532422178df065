package docker

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/lazaret/lazaret"
)

// Connection is command lines for a shell and an editor, and the ports as they are published now.
func (s *service) Connection(ctx context.Context) (lazaret.Connection, error) {
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return lazaret.Connection{}, err
	}
	if !state.Running {
		return lazaret.Connection{}, state.Unavailable()
	}
	name := s.info.Container
	shell := []string{cmp.Or(s.sb.spec.Binary, "docker"), "exec", "-it"}
	if s.info.User != "" {
		shell = append(shell, "--user", s.info.User)
	}
	conn := lazaret.Connection{
		Container: name, Shell: append(shell, name, s.shell(ctx), "-l"),
		VSCode: []string{"code", "--folder-uri", "vscode-remote://attached-container+" + hex.EncodeToString([]byte(name)) + s.info.Dir},
	}
	if conn.Ports, err = publishedPorts(s.Ports, state.Ports); err != nil {
		return conn, err
	}
	conn.Ports = append(conn.Ports, s.forwards.told()...)
	return conn, nil
}

// shell is bash where the service has it, and else sh.
func (s *service) shell(ctx context.Context) string {
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash"} {
		if _, err := s.Files("").Stat(ctx, shell); err == nil {
			return "bash"
		}
	}
	return "sh"
}

// publishedPorts finds for each port that was asked for the one of the host that it got.
func publishedPorts(asked, got []lazaret.Port) (ports []lazaret.Port, err error) {
	for _, p := range asked {
		i := slices.IndexFunc(got, func(g lazaret.Port) bool {
			return g.Container == p.Container && g.Protocol == cmp.Or(p.Protocol, lazaret.ProtocolTCP) &&
				(p.Host == 0 || g.Host == p.Host) && !slices.Contains(ports, g)
		})
		if i < 0 {
			return nil, &lazaret.Error{Class: lazaret.ErrInfrastructure, Err: fmt.Errorf("the Engine has not published port %d", p.Container)}
		}
		ports = append(ports, got[i])
	}
	return ports, nil
}
