package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
)

func (a *commandLine) newForwardCommand() *cobra.Command {
	var n named
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "forward NAME [HOST:]PORT[/udp]...",
		Short: "Reach ports of a named sandbox from this machine",
		Long: `Forward listens on ports of this machine's loopback address, prints them, and
forwards connections to ports of a service, until Ctrl-C. The sandbox needs no
network for that. Without HOST a free port is used.`,
		Example: "  fumehood forward shop 8080:80 --service web\n  fumehood forward shop 5432 5353/udp",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError("forward needs NAME and one or more ports")
			}
			n.name = args[0]
			var ports []fumehood.Port
			for _, arg := range args[1:] {
				text, udp := strings.CutSuffix(arg, "/udp")
				p, err := parsePort(strings.TrimSuffix(text, "/tcp"))
				if err != nil {
					return usageError("%q is not [HOST:]PORT[/udp], with ports up to 65535", arg)
				}
				port := fumehood.Port{Host: int(p.Host), Container: int(p.Container), Protocol: fumehood.ProtocolTCP}
				if udp {
					port.Protocol = fumehood.ProtocolUDP
				}
				ports = append(ports, port)
			}
			return a.forward(cmd.Context(), n, ports, asJSON)
		},
	}
	n.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each port")
	return cmd
}

func (a *commandLine) forward(ctx context.Context, n named, ports []fumehood.Port, asJSON bool) error {
	return a.in(ctx, n, func(_ fumehood.Sandbox, svc fumehood.Service) error {
		for _, p := range ports {
			p, err := svc.Forward(ctx, p)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(p)
			} else {
				err = a.say("%d/%s at %s:%d\n", p.Container, p.Protocol, p.Address, p.Host)
			}
			if err != nil {
				return err
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
