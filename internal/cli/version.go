package cli

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lazaret/lazaret/internal/guestbin"
)

type versionJSON struct {
	Version string            `json:"version"`
	Commit  string            `json:"commit,omitempty"`
	Go      string            `json:"go"`
	Guests  map[string]string `json:"guests"` // by architecture
}

func (a *app) newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of Lazaret and of the guests in it",
		Example: "  lazaret version --json",
		Args:    noArguments,
		RunE:    func(*cobra.Command, []string) error { return a.version(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func (a *app) version(asJSON bool) error {
	v := versionJSON{Version: "unknown", Guests: map[string]string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version, v.Go = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	for _, arch := range guestbin.Architectures {
		guest, err := guestbin.For(arch)
		if err != nil {
			return err
		}
		v.Guests[arch] = guest.Version
	}
	if asJSON {
		enc := json.NewEncoder(a.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	_, err := fmt.Fprintf(a.Out, "lazaret %s (%s)\n", v.Version, v.Go)
	for _, arch := range guestbin.Architectures {
		if err == nil {
			_, err = fmt.Fprintf(a.Out, "guest linux/%s %s\n", arch, v.Guests[arch])
		}
	}
	return err
}
