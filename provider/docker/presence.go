package docker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/reaper"
	"github.com/fumehood/fumehood/internal/owner/sweep"
)

// presence is what a provider runs in addition to its sandboxes, from its first sandbox until it is closed. A reaper
// watches this process, a claim shows that the process lives, and a sweep removes what dead processes left.
type presence struct {
	mu      sync.Mutex
	begun   bool
	trust   *reaper.Trust
	unclaim func() error
	stop    context.CancelFunc // of the sweep
	swept   chan struct{}      // closed when the sweep has ended
}

// claimsKind is the kind of the folder in which processes claim that they live: see owner.StateDir.
const claimsKind = "owners"

// attend starts the parts of presence that are not running yet. It is called before anything of a sandbox is created. A
// kept sandbox needs neither reaper nor claim, because it outlives this process. Errors are only logged, and the
// sandbox starts anyway.
func (p *Provider) attend(ctx context.Context, kept bool) {
	s := &p.presence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept == nil && !p.opts.NoSweep {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		s.stop, s.swept = stop, make(chan struct{})
		go func() {
			defer close(s.swept)
			p.sweepUnasked(ctx, nil, func(o sweep.Object) bool { return isSwept(o, p.clock()) })
		}()
	}
	if kept {
		return
	}
	if s.trust != nil {
		if err := s.trust.Ensure(); err != nil {
			p.opts.Logger.Warn("the reaper cannot be restarted: if this process is killed, its sandboxes stay until the next cleanup", "error", err)
		}
	}
	if s.begun {
		return
	}
	s.begun = true
	dir, err := owner.StateDir(claimsKind)
	if err == nil {
		s.unclaim, err = owner.Attend(dir)
	}
	if err != nil {
		p.opts.Logger.Debug("this process cannot claim that it lives", "error", err)
	}
	if p.opts.NoReaper {
		p.opts.Logger.Info("no reaper is started, as the options require: if this process is killed, its sandboxes stay until the next cleanup")
		return
	}
	job, err := json.Marshal(reaping{Host: p.compose.Found.Host, Context: p.compose.Found.Context, StateDir: p.stateDir, Speedup: p.opts.speedup})
	if err == nil {
		s.trust, err = reaper.Entrust(reaperKind, job)
	}
	if err != nil {
		p.opts.Logger.Warn("the reaper cannot be started: if this process is killed, its sandboxes stay until the next cleanup", "error", err)
	}
}

// sweepEnd bounds the wait for removals of a sweep that are in progress.
const sweepEnd = 10 * time.Second

// leave stops what attend has started. If clean is false, something of this provider's sandboxes is left. The reaper
// then keeps its job and tries again when this process has ended.
func (p *Provider) leave(clean bool) {
	s := &p.presence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept != nil {
		s.stop()
		select {
		case <-s.swept:
		case <-time.After(p.opts.speedup.Of(sweepEnd)): // the daemon hangs; the calls have their own timeouts
		}
	}
	if s.trust != nil && clean {
		s.trust.Release()
		s.trust = nil
	}
	if s.unclaim != nil && clean {
		if err := s.unclaim(); err != nil {
			p.opts.Logger.Debug("the claim of this process cannot be removed", "error", err)
		}
		s.unclaim = nil
	}
}

// grace is how long new objects are left to the reaper of the process that made them.
const grace = time.Minute

// isSwept reports whether an object of a dead owner is removed without a request by the user. Kept sandboxes are not,
// even after they have expired. Nor are caches that are still usable, and objects that were just created.
func isSwept(o sweep.Object, now time.Time) bool {
	return !o.Kept && (!o.Cache || o.Unfinished) && now.Sub(o.Created) > grace
}
