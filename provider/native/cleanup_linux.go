//go:build amd64 || arm64

package native

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

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

// removeUnkept is remove for what is removed without a request by the user. It leaves kept sandboxes in place, even
// after they have expired.
func removeUnkept(ctx context.Context, folder string) error {
	if owner.ReadFolder(folder).Kept {
		return nil
	}
	return remove(ctx, folder)
}

// Cleanup removes the sandboxes of dead owners, kept ones that have expired, and those named in the options, and what
// dead processes left unfinished in the image store. With opts.Caches it also removes the images that no sandbox uses.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	all, err := sweep.Folders(ctx, p.stateDir, opts, remove)
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
	at.Kind, at.Patience, at.Log = reaperKind, sweepEnd, p.log
	if !p.opts.NoReaper {
		at.Job = reaping{StateDir: p.stateDir}
	}
	at.Sweep = func(ctx context.Context) {
		_, err := sweep.Folders(ctx, p.stateDir, provider.CleanupOptions{}, removeUnkept)
		_, serr := p.store.Sweep(ctx)
		if err = errors.Join(err, serr); err != nil && ctx.Err() == nil {
			p.log.Warn("not everything that ended processes left can be removed; `fumehood cleanup` retries", "error", err)
		}
	}
}

// sweepEnd bounds the wait for removals of a sweep that are in progress.
const sweepEnd = 10 * time.Second

// reaping is the job of a reaper: to remove the sandboxes of its owner.
type reaping struct {
	StateDir string `json:"state_dir"`
}

// reaperKind is the kind of this provider's jobs.
const reaperKind = "native"

// RunReaper runs the reaper if this process is one, and returns immediately otherwise. Call it at the beginning of
// main, before anything but RunReaper of other providers. The first sandbox of a process starts the program once more,
// as the process's reaper. In the reaper, RunReaper waits until that process ends, removes the folders and control
// groups that it left, for example when it was killed, and exits. A program that does not call RunReaper has no reaper,
// which is logged. The next start of a sandbox, or Cleanup, then removes what was left.
func RunReaper() {
	reaper.Run(reaperKind, func(ctx context.Context, _, _ owner.ID, text json.RawMessage) error {
		var job reaping
		if err := json.Unmarshal(text, &job); err != nil {
			return err
		}
		_, err := sweep.Folders(ctx, job.StateDir, provider.CleanupOptions{}, removeUnkept)
		return err
	})
}
