//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"strings"

	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/reaper"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Cleaner = (*Provider)(nil)

// remove removes everything of the sandbox with a folder.
func remove(ctx context.Context, folder string) error {
	if err := endFirst(ctx, folder); err != nil {
		return err
	}
	if err := removeGroups(ctx, folder); err != nil {
		return err
	}
	return owner.Discard(folder)
}

// removeGroups kills all processes of the sandbox with a folder, and removes its control groups.
func removeGroups(ctx context.Context, folder string) error {
	own := cgroupName(folder)
	group, err := wholeCgroup(folder, own)
	if err != nil {
		return err
	}
	var names []string
	for _, name := range group.below() {
		names = append(names, own+"/"+name)
	}
	for _, name := range append(names, startersName(folder), own) { // a runtime could make the last one once more
		group, err := wholeCgroup(folder, name)
		if err != nil {
			return err
		}
		if err := group.remove(ctx); err != nil {
			return err
		}
	}
	return nil
}

// removeUnkept is remove, but leaves a sandbox that has become a kept one since it was listed.
func removeUnkept(ctx context.Context, folder string) error {
	if owner.ReadFolder(folder).Kept {
		return nil
	}
	return remove(ctx, folder)
}

// Cleanup removes the sandboxes of dead owners, kept ones that have expired, and those named in the options, and what
// dead processes left unfinished in the image store. With opts.Caches it also removes the images that no sandbox uses.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	all, err := sweep.Removal{}.Run(ctx, opts, sweep.Folders(p.stateDir, remove))
	if err != nil && all == nil {
		return nil, err
	}
	var swept []imagestore.Removed
	if !opts.DryRun && len(opts.Names) == 0 {
		var serr error
		swept, serr = p.store.Sweep(ctx)
		err = errors.Join(err, serr)
	}
	removed, cerr := p.store.Cleanup(ctx, opts.DryRun || !opts.Caches)
	for _, r := range append(swept, removed...) {
		l := provider.Leftover{
			Kind: string(r.Kind), Name: strings.Join(append([]string{r.ID}, r.Refs...), " "), Cache: true,
			Remove: opts.Caches, Reason: "a cache that nothing uses",
		}
		if r.Kind == imagestore.KindUnfinished {
			l.Remove, l.Reason = opts.Caches || len(opts.Names) == 0, "unfinished by a process that has ended"
		}
		l.Removed = l.Remove && !opts.DryRun
		all = append(all, l)
	}
	return all, errors.Join(err, cerr)
}

// live sets how the provider's sandboxes live, and what runs beside them.
func (p *Provider) live() {
	p.life.Driver, p.life.KeptLater = driver{p}, true
	at := &p.life.Presence
	at.Kind, at.Log = reaperKind, p.log
	if !p.opts.NoReaper {
		at.Job = reaping{StateDir: p.stateDir}
	}
	at.Sweep = func(ctx context.Context) ([]provider.Leftover, error) {
		plan, err := reaping{p.stateDir}.sweep(ctx)
		_, serr := p.store.Sweep(ctx)
		return plan, errors.Join(err, serr)
	}
}

// reaperKind is the kind of this provider's jobs.
var reaperKind = reaper.Kind[reaping]("native")

// reaping is the job of a reaper: to remove the folders and control groups of ended processes.
type reaping struct {
	StateDir string `json:"state_dir"`
}

// Do removes what is left. Other owners than dead may have ended too.
func (r reaping) Do(ctx context.Context, _, _ owner.ID) error {
	_, err := r.sweep(ctx)
	return err
}

// sweep removes what is left without a request by the user. Kept sandboxes stay, even after they have expired.
func (r reaping) sweep(ctx context.Context) ([]provider.Leftover, error) {
	unkept := sweep.Removal{Among: func(o sweep.Object) bool { return !o.Kept }}
	return unkept.Run(ctx, provider.CleanupOptions{}, sweep.Folders(r.StateDir, removeUnkept))
}
