package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/provider/native"
)

// configOptions are the options of `fumehood config`.
type configOptions struct {
	spec fumehood.Spec
	json bool
}

func (a *commandLine) newConfigCommand(runF func(context.Context, *commandLine, configOptions) error) *cobra.Command {
	var f projectFlags
	var opts configOptions
	cmd := &cobra.Command{
		Use:   "config [flags]",
		Short: "Show a Compose project as it would run, with all changes",
		Long: `Config prints a Compose project as "run -f" and "up -f" would start it:
interpolated, isolated, and changed so that copies can run at once. The changes
and their reasons follow as comments. Values of variables are shown; contents of
secrets are not.

With --provider native or kubernetes it refuses what that provider cannot run,
and shows the changes that Docker needs.

It contacts no daemon. So it does not know the subnets of the networks, and
assumes that an image's entrypoint adds nothing.`,
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
	cmd.Flags().StringVar(&opts.spec.Name, "name", "", "the sandbox's `name` (default: the folder's name)")
	cmd.Flags().BoolVar(&opts.json, "json", false, "print one JSON object with the default service, the project and the changes")
	return cmd
}

func showConfig(ctx context.Context, a *commandLine, opts configOptions) error {
	opts.spec.Runtime = a.runtime
	c, err := docker.ResolveCompose(ctx, opts.spec)
	if err != nil {
		return err
	}
	switch a.provider {
	case "native":
		err = native.CheckCompose(ctx, a.nativeOptions(), opts.spec)
	case kubernetesName:
		cluster, cerr := a.clusterOptions()
		if cerr != nil {
			return cerr
		}
		err = kubernetes.CheckCompose(ctx, cluster, opts.spec)
	}
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
	if _, err := fmt.Fprintf(out, "\n# The default service is %s. Changes from the files:\n", c.Default); err != nil {
		return err
	}
	for _, change := range c.Changes {
		if _, err := fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(plain(change.String()), "\n", `\n`)); err != nil {
			return err
		}
	}
	return out.Close()
}
