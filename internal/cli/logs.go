package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lazaret/lazaret"
)

func (a *app) newLogsCommand() *cobra.Command {
	var n named
	var opts lazaret.LogOptions
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a service of a named sandbox has written",
		Long: `Logs prints what the main process of a service has written, whether or not it
still runs. A service that only idles has Lazaret's own program there, and no
log: what its commands write comes from "lazaret exec", and what detached ones
write from "lazaret process follow".`,
		Example: "  lazaret logs shop --service db --tail 20\n  lazaret logs shop -f",
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
	cmd.Flags().IntVar(&opts.Tail, "tail", 0, "print only so many of the last `lines` (default: all)")
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "go on with what comes, until the service ends")
	return cmd
}

func (a *app) logs(ctx context.Context, n named, opts lazaret.LogOptions) (err error) {
	p, o, err := a.opener(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = o.Logs(ctx, n.name, n.service, opts, func(s lazaret.Stream, b []byte) {
		if _, werr := a.of(s).Write(b); werr != nil {
			cancel(werr)
		}
	})
	var exit *exitError
	if cause := context.Cause(ctx); errors.As(cause, &exit) { // that nobody reads is the reason
		return cause
	}
	return err
}
