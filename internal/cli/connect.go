package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/spec"
)

func (a *commandLine) newConnectCommand() *cobra.Command {
	var n named
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "connect NAME",
		Short: "Show how to enter a named sandbox with a shell or an editor",
		Long: `Connect prints a running service's container, command lines for a shell and for
VS Code, and the addresses of published ports.`,
		Example: "  fumehood connect box\n  fumehood connect shop --service web --user nobody --json",
		Args:    wantArguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.name = args[0]
			return a.connect(cmd.Context(), n, asJSON)
		},
	}
	n.add(cmd.Flags())
	n.addUser(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// connectionJSON describes how to reach a service.
type connectionJSON struct {
	Sandbox string `json:"sandbox"`
	Service string `json:"service"`
	fumehood.Connection
}

func (a *commandLine) connect(ctx context.Context, n named, asJSON bool) error {
	return a.in(ctx, n, func(sb fumehood.Sandbox, svc fumehood.Service) error {
		c, err := svc.Connection(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(connectionJSON{sb.Info().Name, svc.ServiceInfo().Name, c})
		}
		var text string
		for _, line := range [][2]string{{"container:", c.Container}, {"shell:", spec.QuoteAll(c.Shell)}, {"vscode:", spec.QuoteAll(c.VSCode)}} {
			if line[1] != "" {
				text += fmt.Sprintf("%-10s %s\n", line[0], line[1])
			}
		}
		for _, p := range c.Ports {
			text += fmt.Sprintf("port:      %d/%s at %s:%d\n", p.Container, p.Protocol, p.Address, p.Host)
		}
		return a.say("%s", text)
	})
}
