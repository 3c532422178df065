package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/provider"
)

// upOptions are the options of `fumehood up`.
type upOptions struct {
	spec    app.Described
	json    bool
	journal journalFlag
}

func (a *commandLine) newUpCommand(runF func(context.Context, *commandLine, upOptions) error) *cobra.Command {
	var project projectFlags
	var image sandboxFlags
	var opts upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox that keeps running, and print its name",
		Long: `Up starts a sandbox from an image, or from what -f describes (see run), and
prints its name. It stays until "fumehood down" or "fumehood cleanup NAME"
removes it or, with --ttl, until a cleanup after that time. "fumehood exec" runs
commands in it, "fumehood cp" copies files, "fumehood shell" enters it.`,
		Example: `  fumehood up --image python:3.12-slim --name box
  fumehood up -f compose.yaml --name shop --ttl 8h`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.spec.TTL < 0 {
				return usageError("--ttl %v is negative", opts.spec.TTL)
			}
			spec, err := image.spec()
			if err != nil {
				return usageError("%w", err)
			}
			spec.Name, spec.TTL, spec.Keep = opts.spec.Name, opts.spec.TTL, true
			if opts.spec, err = a.describe(&project, spec); err != nil {
				return err
			}
			return runF(cmd.Context(), a, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.spec.Name, "name", "", "the sandbox's `name` (default: a random one)")
	flags.DurationVar(&opts.spec.TTL, "ttl", 0, "the `time` after which a cleanup removes it, such as 8h (default: never)")
	flags.BoolVar(&opts.json, "json", false, "print a JSON object that describes the sandbox instead of its name")
	image.add(flags)
	project.add(flags)
	opts.journal.add(flags)
	return cmd
}

func runUp(ctx context.Context, a *commandLine, opts upOptions) error {
	journal, file, err := a.openJournal(opts.journal)
	if err != nil {
		return err
	}
	defer file.Close()
	opts.spec.Journal = journal
	return a.actions().Up(ctx, opts.spec, func(info fumehood.Info, listed func() (provider.KeptSandbox, error)) error {
		if !opts.json {
			_, err := fmt.Fprintln(a.Out, info.Name)
			return err
		}
		k, err := listed() // as ps
		if err != nil {
			return err
		}
		return a.printJSON(sandboxOf(k, services(info.Services, nil)))
	})
}
