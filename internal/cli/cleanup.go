package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/session"
)

func (a *commandLine) newCleanupCommand() *cobra.Command {
	var opts provider.CleanupOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cleanup [NAME...]",
		Short: "Remove what ended processes left, and the sandboxes named",
		Long: `Cleanup lists everything of Fumehood's and removes what belongs to processes
that have ended: in the daemon, and the folders of local sandboxes and sessions.
It never touches what a running process holds. Kept ones, and those of owners
that cannot be judged from this machine, go when they are named, or when their
time or lease is over. Caches stay, but for the guests of other versions that
are a day old and that no container uses.

A secret of the user's proves what Fumehood made. Foreign objects, whose labels
only say so, are listed and stay: those of other users of the daemon, and those
of a user whose secret was lost. --foreign removes them by name or pattern.`,
		Example: `  fumehood cleanup
  fumehood cleanup --dry-run --json
  fumehood cleanup fumehood-3f9c2b7a1d0e
  fumehood cleanup --caches
  fumehood cleanup --foreign 'fumehood-*'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Names = args
			return a.cleanup(cmd.Context(), opts, asJSON)
		},
	}
	cmd.Flags().BoolVar(&opts.Caches, "caches", false, "remove the caches too: guest volumes and images that Fumehood made")
	cmd.Flags().StringArrayVar(&opts.Foreign, "foreign", nil, "remove foreign objects of this name or pattern too (repeatable)")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "list only, remove nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func (a *commandLine) cleanup(ctx context.Context, opts provider.CleanupOptions, asJSON bool) error {
	a.quietly()
	found, err := a.cleanAll(ctx, opts)
	if found == nil && err != nil {
		return err
	}
	if asJSON {
		return errors.Join(a.printLeftoversJSON(found), err)
	}
	return errors.Join(a.printLeftovers(found, opts.DryRun), err)
}

// cleaner cleans up one kind of things.
type cleaner func(context.Context, provider.CleanupOptions) ([]provider.Leftover, error)

// cleanAll cleans up at the provider, and among the folders of local sandboxes and of sessions, at each
// those that are named and are there.
func (a *commandLine) cleanAll(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	at := func(name string) cleaner {
		return func(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
			return a.cleanOne(ctx, name, opts)
		}
	}
	folders := []cleaner{a.cleanSessions}
	if a.provider != "local" {
		folders = append(folders, at("local"))
	}
	other, shares := opts, make([]provider.CleanupOptions, len(folders))
	for i, clean := range folders {
		all, err := clean(ctx, provider.CleanupOptions{DryRun: true})
		if err != nil {
			return nil, err
		}
		there := func(name string) bool {
			return slices.ContainsFunc(all, func(l provider.Leftover) bool { return l.Sandbox == name })
		}
		shares[i] = opts
		shares[i].Names = slices.DeleteFunc(slices.Clone(other.Names), func(name string) bool { return !there(name) })
		other.Names = slices.DeleteFunc(slices.Clone(other.Names), there)
	}
	var found []provider.Leftover
	var err error
	if len(opts.Names) == 0 || len(other.Names) > 0 {
		if found, err = a.cleanOne(ctx, a.provider, other); err != nil && found == nil && len(other.Names) > 0 {
			return nil, err // a name that nobody knows: nothing is removed
		}
	}
	for i, clean := range folders {
		if len(opts.Names) == 0 || len(shares[i].Names) > 0 {
			more, cerr := clean(ctx, shares[i])
			found, err = append(found, more...), errors.Join(err, cerr)
		}
	}
	return found, err
}

// cleanSessions removes the folders of sessions. What belongs to root in them, containers remove, if the
// daemon answers.
func (a *commandLine) cleanSessions(ctx context.Context, opts provider.CleanupOptions) (found []provider.Leftover, err error) {
	dry := opts
	dry.DryRun = true
	plan, err := session.Cleanup(ctx, nil, "", dry)
	if err != nil || opts.DryRun || !slices.ContainsFunc(plan, func(l provider.Leftover) bool { return l.Remove }) {
		return plan, err
	}
	engine := a.dockerOptions()
	engine.Transport = docker.TransportGuest // the other one removes no files
	p, err := docker.New(ctx, engine)
	if err != nil {
		return session.Cleanup(ctx, nil, "", opts) // whose error tells what was needed
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	return session.Cleanup(ctx, p, "", opts)
}

func (a *commandLine) cleanOne(ctx context.Context, name string, opts provider.CleanupOptions) (found []provider.Leftover, err error) {
	p, err := a.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	cleaner, ok := p.(provider.Cleaner)
	if !ok {
		return nil, &fumehood.Error{Op: "clean up", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s cannot", name)}
	}
	return cleaner.Cleanup(ctx, opts)
}

// action says in a word what happened to an object.
func action(l provider.Leftover, dryRun bool) string {
	switch {
	case l.Err != nil:
		return "failed"
	case l.Removed:
		return "removed"
	case l.Remove && dryRun:
		return "would remove"
	}
	return "left"
}

// printLeftovers prints what was found, each sandbox with its objects, and the caches.
func (a *commandLine) printLeftovers(found []provider.Leftover, dryRun bool) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(a.Out, "nothing of Fumehood's is there")
		return err
	}
	heading := func(l provider.Leftover) string {
		name := l.Sandbox
		switch {
		case l.Foreign:
			name = "foreign"
		case l.Cache || name == "":
			name = "caches"
		}
		return fmt.Sprintf("%s: %s (%s)", name, action(l, dryRun), l.Reason)
	}
	var headings []string
	objects := map[string][]string{}
	for _, l := range found {
		h := heading(l)
		if objects[h] == nil {
			headings = append(headings, h)
		}
		objects[h] = append(objects[h], fmt.Sprintf("  %-9s  %s\n", l.Kind, l.Name))
	}
	for _, h := range headings {
		if _, err := fmt.Fprintf(a.Out, "%s\n%s", wrap(h, 0), strings.Join(objects[h], "")); err != nil {
			return err
		}
	}
	return nil
}

type leftoverJSON struct {
	Kind    string     `json:"kind"`
	Name    string     `json:"name"`
	Sandbox string     `json:"sandbox,omitempty"`
	Owner   string     `json:"owner"`
	Kept    bool       `json:"kept"`
	Cache   bool       `json:"cache"`
	Foreign bool       `json:"foreign"`
	Remove  bool       `json:"remove"`
	Removed bool       `json:"removed"`
	Reason  string     `json:"reason"`
	Error   *errorJSON `json:"error"`
}

func (a *commandLine) printLeftoversJSON(found []provider.Leftover) error {
	all := make([]leftoverJSON, len(found))
	for i, l := range found {
		all[i] = leftoverJSON{
			Kind: l.Kind, Name: l.Name, Sandbox: l.Sandbox, Owner: l.Owner, Kept: l.Kept, Cache: l.Cache, Foreign: l.Foreign,
			Remove: l.Remove, Removed: l.Removed, Reason: l.Reason, Error: describe(l.Err),
		}
	}
	return a.printJSON(all)
}
