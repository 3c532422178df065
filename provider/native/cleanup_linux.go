//go:build amd64 || arm64

package native

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

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

// presence is what a provider runs from its first sandbox until it is closed: a reaper, and a sweep that removes what
// dead processes left.
type presence struct {
	mu    sync.Mutex
	begun bool
	trust *reaper.Trust
	stop  context.CancelFunc // of the sweep
	swept chan struct{}      // closed when the sweep has ended
}

// attend starts what is not running yet. It is called before anything of a sandbox is made. Errors are only logged.
func (p *Provider) attend(ctx context.Context) {
	s := &p.presence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trust != nil {
		if err := s.trust.Ensure(); err != nil {
			p.log.Warn("the reaper cannot be restarted: if this process is killed, its sandboxes' folders stay until the next cleanup", "error", err)
		}
	}
	if s.begun {
		return
	}
	s.begun = true
	sweeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.swept = stop, make(chan struct{})
	go func() {
		defer close(s.swept)
		_, err := sweep.Folders(sweeping, p.stateDir, provider.CleanupOptions{}, removeUnkept)
		_, serr := p.store.Sweep(sweeping)
		if err = errors.Join(err, serr); err != nil && sweeping.Err() == nil {
			p.log.Warn("not everything that ended processes left can be removed; `fumehood cleanup` retries", "error", err)
		}
	}()
	if p.opts.NoReaper {
		p.log.Info("no reaper is started, as the options require: if this process is killed, its sandboxes' folders stay until the next cleanup")
		return
	}
	job, err := json.Marshal(reaping{StateDir: p.stateDir})
	if err == nil {
		s.trust, err = reaper.Entrust(reaperKind, job)
	}
	if err != nil {
		p.log.Warn("the reaper cannot be started: if this process is killed, its sandboxes' folders stay until the next cleanup", "error", err)
	}
}

// leave stops what attend has started. If clean is false, something of a sandbox is left, and the reaper keeps its job.
func (p *Provider) leave(clean bool) {
	s := &p.presence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept != nil {
		s.stop()
		<-s.swept
	}
	if s.trust != nil && clean {
		s.trust.Release()
		s.trust = nil
		s.begun = false
	}
}

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
