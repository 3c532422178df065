package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

func (a *commandLine) newLogsCommand() *cobra.Command {
	var n named
	var opts provider.LogOptions
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the output of a service of a named sandbox",
		Long: `Logs prints the output of a service's main process, whether or not it still
runs. A service without a command of its own logs nothing, and the output of
"fumehood exec" is not logged. The native provider keeps the last MiB of each of
standard output and standard error, and --tail counts the lines of each. On a
terminal, control characters are shown as escapes such as \x1b.`,
		Example: "  fumehood logs shop --service db --tail 20\n  fumehood logs shop -f",
		Args:    wantArguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.Tail < 0 {
				return usageError("--tail %d is negative", opts.Tail)
			}
			n.name = args[0]
			return a.logs(cmd.Context(), n, opts)
		},
	}
	n.add(cmd.Flags())
	cmd.Flags().IntVar(&opts.Tail, "tail", 0, "print only this number of last `lines` (default: all)")
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "keep printing new output until the service ends")
	return cmd
}

func (a *commandLine) logs(ctx context.Context, n named, opts provider.LogOptions) (err error) {
	o, err := a.holder(ctx, n.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close(ctx)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	to := map[fumehood.Stream]io.WriteCloser{fumehood.Stdout: forPeople(a.Out), fumehood.Stderr: forPeople(a.Err)}
	err = o.Logs(ctx, n.name, n.service, opts, func(s fumehood.Stream, b []byte) {
		if _, werr := to[s].Write(b); werr != nil {
			cancel(werr)
		}
	})
	for _, w := range to {
		err = errors.Join(err, w.Close())
	}
	var exit *exitError
	if cause := context.Cause(ctx); errors.As(cause, &exit) { // our output could not be written
		return cause
	}
	return err
}
