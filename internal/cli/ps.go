package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

func (a *commandLine) newPsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the named sandboxes",
		Long: `Ps lists the kept sandboxes of all processes: those of "fumehood up" and of
"fumehood run --keep". "fumehood cleanup --dry-run" lists everything else.`,
		Example: "  fumehood ps\n  fumehood ps --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ps(cmd.Context(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

// sandboxJSON describes a named sandbox.
type sandboxJSON struct {
	Name     string        `json:"name"`
	Provider string        `json:"provider"`
	Created  time.Time     `json:"created"`
	Expires  *time.Time    `json:"expires"` // null if it stays until removed by name
	Services []serviceJSON `json:"services"`
}

func sandboxOf(k provider.KeptSandbox, services []serviceJSON) sandboxJSON {
	s := sandboxJSON{Name: k.Name, Provider: k.Provider, Created: k.Created.UTC(), Services: services}
	if !k.Expires.IsZero() {
		s.Expires = new(k.Expires.UTC())
	}
	return s
}

type serviceJSON struct {
	fumehood.ServiceInfo
	State string `json:"state,omitempty"`
}

func services(infos []fumehood.ServiceInfo, states map[string]string) []serviceJSON {
	all := make([]serviceJSON, len(infos))
	for i, s := range infos {
		all[i] = serviceJSON{s, states[s.Name]}
	}
	return all
}

// findKept lists the kept sandboxes by name.
func (a *commandLine) findKept(ctx context.Context) (all []provider.KeptSandbox, err error) {
	for _, place := range a.places() {
		o, err := a.opener(ctx, place)
		if a.lacksDocker(err) || err == nil && o == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		kept, err := o.Kept(ctx)
		if err := errors.Join(err, o.Close(ctx)); err != nil {
			return nil, err
		}
		all = append(all, kept...)
	}
	slices.SortStableFunc(all, func(x, y provider.KeptSandbox) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}

func (a *commandLine) ps(ctx context.Context, asJSON bool) error {
	kept, err := a.findKept(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		all := make([]sandboxJSON, len(kept))
		for i, k := range kept {
			all[i] = sandboxOf(k, services(k.Services, k.States))
		}
		return a.printJSON(all)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tPROVIDER\tSERVICE\tSTATE\tIMAGE\tEXPIRES")
	for _, k := range kept {
		expires := "-"
		if !k.Expires.IsZero() {
			expires = k.Expires.UTC().Format(time.RFC3339)
		}
		for _, s := range k.Services {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, k.Provider, s.Name, k.States[s.Name], s.Image, expires)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprint(a.Out, b.String())
	return err
}
