package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/session"
)

func (a *commandLine) newCleanupCommand() *cobra.Command {
	var opts provider.CleanupOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cleanup [NAME...]",
		Short: "Remove what ended processes left behind, and named sandboxes",
		Long: `Cleanup lists all of Fumehood's objects and removes those whose process has
ended: objects in the daemon, and folders of local sandboxes and sessions. It
never removes what a running process holds. Kept sandboxes, and those whose
owner cannot be checked from this machine, are removed when named or when their
TTL or lease has expired. Caches stay, except unused guests of other versions
after a day.

Objects that have Fumehood's labels without a seal by this user's secret are
foreign and stay: they belong to other users of the daemon, or to a user whose
secret was lost. --foreign removes them by name or pattern.`,
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
	cmd.Flags().BoolVar(&opts.Caches, "caches", false, "also remove the caches: guest volumes and images that Fumehood made")
	cmd.Flags().StringArrayVar(&opts.Foreign, "foreign", nil, "also remove foreign objects with this `name` or pattern (repeatable)")
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

// cleaner cleans up one kind of leftover.
type cleaner func(context.Context, provider.CleanupOptions) ([]provider.Leftover, error)

// at returns the cleaner of a provider.
func (a *commandLine) at(name string) cleaner {
	return func(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
		return a.cleanOne(ctx, name, opts)
	}
}

// cleanAll cleans up objects of the providers and folders of local sandboxes and sessions.
func (a *commandLine) cleanAll(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	others := []cleaner{a.cleanSessions}
	for _, other := range []string{"local", "native"} {
		if other != a.provider && (other != "native" || native.CheckSupport() == nil && !a.needsEngine()) {
			others = append(others, a.at(other))
		}
	}
	return cleanWith(ctx, a.main(a.at("docker")), others, opts)
}

// main returns the cleaner of the provider: for auto that of docker, which has nothing if there is no daemon.
func (a *commandLine) main(docked cleaner) cleaner {
	switch a.provider {
	case "docker":
		return docked
	case auto:
	default:
		return a.at(a.provider)
	}
	return func(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
		found, err := docked(ctx, opts)
		if !a.lacksDocker(err) {
			return found, err
		}
		if len(opts.Names) > 0 {
			return nil, &fumehood.Error{
				Op: "clean up", Class: fumehood.ErrConfig, Err: fmt.Errorf("no sandbox %s", opts.Names[0]),
				Hint: notInDocker("`fumehood cleanup --dry-run`", err),
			}
		}
		return nil, nil
	}
}

// cleanWith cleans up with several cleaners. Each gets those of the given names that it knows; main gets the rest, and
// returns an error if it does not know one. Then nothing is removed.
func cleanWith(ctx context.Context, main cleaner, others []cleaner, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	rest, shares := opts, make([]provider.CleanupOptions, len(others))
	for i, clean := range others {
		all, err := clean(ctx, provider.CleanupOptions{DryRun: true})
		if err != nil {
			return nil, err
		}
		there := func(name string) bool {
			return slices.ContainsFunc(all, func(l provider.Leftover) bool { return l.Sandbox == name })
		}
		shares[i] = opts
		shares[i].Names = slices.DeleteFunc(slices.Clone(rest.Names), func(name string) bool { return !there(name) })
		rest.Names = slices.DeleteFunc(slices.Clone(rest.Names), there)
	}
	var found []provider.Leftover
	var err error
	if len(opts.Names) == 0 || len(rest.Names) > 0 {
		if found, err = main(ctx, rest); err != nil && found == nil && len(rest.Names) > 0 {
			return nil, err // unknown name: remove nothing
		}
	}
	for i, clean := range others {
		if len(opts.Names) == 0 || len(shares[i].Names) > 0 {
			more, cerr := clean(ctx, shares[i])
			found, err = append(found, more...), errors.Join(err, cerr)
		}
	}
	return found, err
}

// cleanSessions removes the folders of sessions. Files in them that belong to root are removed by containers,
// if the daemon answers.
func (a *commandLine) cleanSessions(ctx context.Context, opts provider.CleanupOptions) (found []provider.Leftover, err error) {
	dry := opts
	dry.DryRun = true
	plan, err := session.Cleanup(ctx, nil, "", dry)
	if err != nil || opts.DryRun || !slices.ContainsFunc(plan, func(l provider.Leftover) bool { return l.Remove }) {
		return plan, err
	}
	engine := a.dockerOptions()
	engine.Transport = docker.TransportGuest // TransportEngine cannot remove files
	p, err := docker.New(ctx, engine)
	if err != nil {
		return session.Cleanup(ctx, nil, "", opts) // its error reports what needed the daemon
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	return session.Cleanup(ctx, p, "", opts)
}

func (a *commandLine) cleanOne(ctx context.Context, name string, opts provider.CleanupOptions) (found []provider.Leftover, err error) {
	p, err := a.openProvider(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	cleaner, ok := p.(provider.Cleaner)
	if !ok {
		return nil, &fumehood.Error{Op: "clean up", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s does not support cleanup", name)}
	}
	return cleaner.Cleanup(ctx, opts)
}

// action returns what happened to an object, or what would happen in a dry run.
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

// printLeftovers prints each sandbox with its objects, and the caches.
func (a *commandLine) printLeftovers(found []provider.Leftover, dryRun bool) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(a.Out, "nothing to clean up")
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
	Error   *api.Error `json:"error"`
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
