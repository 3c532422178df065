package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/native"
)

func (a *commandLine) newDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME...",
		Short: "Remove named sandboxes",
		Long: `Down removes the named sandboxes with everything that runs in them, and prints
their names. If one of the names is unknown, nothing is removed.`,
		Example: "  fumehood down box shop",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("down needs the name of a sandbox")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.down(cmd.Context(), args) },
	}
}

func (a *commandLine) down(ctx context.Context, names []string) error {
	a.quietly()
	var others []cleaner
	if a.provider == auto && native.CheckSupport() == nil && !a.needsEngine() {
		others = append(others, a.at("native"))
	}
	if _, err := cleanWith(ctx, a.main(a.downDocker), others, provider.CleanupOptions{Names: names}); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if _, err := fmt.Fprintln(a.Out, name); err != nil {
			return err
		}
	}
	return nil
}

// downDocker removes sandboxes from the daemon. A folder alone is not a sandbox of this daemon.
func (a *commandLine) downDocker(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	dry := opts
	dry.DryRun = true
	found, err := a.cleanOne(ctx, "docker", dry)
	if err != nil {
		return nil, err
	}
	for _, name := range opts.Names {
		if !slices.ContainsFunc(found, func(l provider.Leftover) bool { return l.Sandbox == name && l.Kind != "folder" }) {
			return nil, &fumehood.Error{
				Op: "down", Class: fumehood.ErrConfig, Err: fmt.Errorf("this daemon has no sandbox %s, but this machine has a folder of that name", name),
				Hint: "if the sandbox is not on another daemon, `fumehood cleanup " + name + "` removes the folder",
			}
		}
	}
	return a.cleanOne(ctx, "docker", opts)
}
