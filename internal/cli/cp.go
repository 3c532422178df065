package cli

import (
	"context"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
)

// cpOptions are the options of `fumehood cp`.
type cpOptions struct {
	named
	app.Transfer
	out bool
}

func (a *commandLine) newCpCommand(runF func(context.Context, *commandLine, cpOptions) error) *cobra.Command {
	var opts cpOptions
	var flags copyOutFlags
	cmd := &cobra.Command{
		Use:   "cp {HOST NAME:PATH | NAME:PATH HOST}",
		Short: "Copy a file or folder into or out of a named sandbox",
		Long: `Cp copies a file or a tree into or out of a named sandbox. A file, or a tree
that is copied out, is copied into the target if that is an existing folder. A
tree that is copied in becomes the target folder itself. A path of this machine
that looks like NAME:PATH needs ./ before it.

What is copied in belongs to the user, and so do missing folders that are
created for it. Existing folders keep their owner, but an empty working
directory of root is given to the user. NAME:/ is copied without /dev, /proc
and /sys. Holes of sparse files that are copied out stay holes. Pipes, sockets
and devices are not copied out, with a warning.`,
		Example: `  fumehood cp ./src box:/src
  fumehood cp box:/src/out.txt .
  fumehood cp dump.sql shop:/tmp/ --service db`,
		Args: wantArguments("SOURCE", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opts.name, opts.Transfer, opts.out, err = parseCopy(args[0], args[1]); err != nil {
				return err
			}
			if err := flags.apply(&opts.Transfer); err != nil {
				return err
			}
			return runF(cmd.Context(), a, opts)
		},
	}
	opts.add(cmd.Flags())
	opts.addUser(cmd.Flags())
	flags.add(cmd.Flags())
	return cmd
}

// inSandboxRE matches NAME:PATH. A single letter before the colon is a Windows drive and does not match.
var inSandboxRE = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]+):(.+)$`)

// parseCopy parses the two arguments. Exactly one of them must be in a sandbox.
func parseCopy(source, target string) (name string, t app.Transfer, out bool, err error) {
	from, to := inSandboxRE.FindStringSubmatch(source), inSandboxRE.FindStringSubmatch(target)
	switch {
	case (from == nil) == (to == nil) || source == "" || target == "":
		return "", t, false, usageError("one of %q and %q must be in a sandbox (NAME:PATH), the other on this machine", source, target)
	case to != nil:
		return to[1], app.Transfer{Host: source, Sandbox: to[2]}, false, nil
	}
	return from[1], app.Transfer{Host: target, Sandbox: from[2]}, true, nil
}

func runCp(ctx context.Context, a *commandLine, opts cpOptions) error {
	return a.in(ctx, opts.named, func(_ fumehood.Sandbox, svc fumehood.Service) error {
		if opts.out {
			return opts.CopyOut(ctx, svc, a.log)
		}
		return opts.CopyIn(ctx, svc)
	})
}
