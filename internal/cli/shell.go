package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
)

func (a *commandLine) newShellCommand() *cobra.Command {
	var n named
	cmd := &cobra.Command{
		Use:   "shell NAME",
		Short: "Open a shell in a named sandbox",
		Long: `Shell opens a login shell in a named sandbox: bash if the service has it,
otherwise sh. No docker command is needed. TERM is that of this terminal if it
is a common type, otherwise xterm, unless the service sets it.`,
		Example: "  fumehood shell box\n  fumehood shell shop --service db -u postgres",
		Args:    wantArguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.name = args[0]
			ctx := cmd.Context()
			return a.in(ctx, n, func(_ fumehood.Sandbox, svc fumehood.Service) error {
				login := fumehood.Cmd{Args: []string{"bash", "-l"}, TTY: true, Term: a.terminalType()}
				res, err := a.inTerminal(ctx, svc, login)
				if errors.Is(err, fumehood.ErrProgramNotFound) {
					login.Args[0] = "sh"
					res, err = a.inTerminal(ctx, svc, login)
				}
				if err != nil {
					return err
				}
				return a.resultError(login, res)
			})
		},
	}
	n.add(cmd.Flags())
	n.addUser(cmd.Flags())
	return cmd
}
