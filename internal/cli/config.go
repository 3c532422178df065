package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// configOptions are what `fumehood config` was asked to show.
type configOptions struct {
	spec fumehood.Spec
	json bool
}

func (a *commandLine) newConfigCommand(runF func(context.Context, *commandLine, configOptions) error) *cobra.Command {
	var f projectFlags
	var opts configOptions
	cmd := &cobra.Command{
		Use:   "config [flags]",
		Short: "Show what a Compose project becomes, and what is changed for it",
		Long: `Config reads a Compose project as run -f and up do, and prints it as it would be
started: with nothing left to interpolate, and changed so that it is isolated
and copies of it run side by side. What was changed, and why, follows as
comments. Values of variables are shown; contents of secrets are not.

It asks no daemon. So it cannot tell which subnets the networks will have, and
takes an image's entrypoint for one that adds nothing.`,
		Example: `  fumehood config
  fumehood config -f compose.yaml --egress internet
  fumehood config -f task/ --json | jq '.changes[] | select(.unsafe)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("config takes no arguments, but %q was given; the file is named by -f", args[0])
			}
			if len(f.files) == 0 {
				f.files = []string{"."}
			}
			project, err := f.compose()
			if err != nil {
				return usageError("%w", err)
			}
			opts.spec.Compose = &project
			return runF(cmd.Context(), a, opts)
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&opts.spec.Name, "name", "", "the sandbox's `name` (default: the folder's)")
	cmd.Flags().BoolVar(&opts.json, "json", false, "print one JSON object: the default service, the project, the changes")
	return cmd
}

func showConfig(ctx context.Context, a *commandLine, opts configOptions) error {
	opts.spec.Runtime = a.runtime
	c, err := docker.ResolveCompose(ctx, opts.spec)
	if err != nil {
		return err
	}
	if opts.json {
		return a.printJSON(c)
	}
	out := forPeople(a.Out)
	if _, err := out.Write(c.YAML); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "\n# The default service is %s. What is not as the files have it:\n", c.Default); err != nil {
		return err
	}
	for _, change := range c.Changes {
		if _, err := fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(plain(change.String()), "\n", `\n`)); err != nil {
			return err
		}
	}
	return out.Close()
}
