package cli

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/internal/guest/guestbin"
)

type versionJSON struct {
	Version string            `json:"version"`
	Commit  string            `json:"commit,omitempty"`
	Go      string            `json:"go"`
	Guests  map[string]string `json:"guests"` // versions by architecture; without guests that are built at first use
}

func (a *commandLine) newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of Fumehood and its guests",
		Example: "  fumehood version --json",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.version(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// programVersion returns the version of the program, or "unknown".
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

func (a *commandLine) version(ctx context.Context, asJSON bool) error {
	v := versionJSON{Version: programVersion(), Guests: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Go = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	for _, arch := range guestbin.Architectures {
		if !guestbin.Built(arch) {
			continue
		}
		guest, err := guestbin.For(ctx, arch, a.providerLog())
		if err != nil {
			return err
		}
		v.Guests[arch] = guest.Version
	}
	if asJSON {
		return a.printJSON(v)
	}
	_, err := fmt.Fprintf(a.Out, "fumehood %s (%s)\n", v.Version, v.Go)
	for _, arch := range guestbin.Architectures {
		if err == nil {
			_, err = fmt.Fprintf(a.Out, "guest linux/%s %s\n", arch, cmp.Or(v.Guests[arch], "is built at first use"))
		}
	}
	return err
}
