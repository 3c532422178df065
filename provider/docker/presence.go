package docker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/reaper"
	"github.com/fumehood/fumehood/internal/sweep"
)

// presence is what a provider does beside its sandboxes, from its first one until it is closed: it has a reaper watch
// this process, claims that this process lives, and removes what others have left.
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

// attend begins with all that, where it has not begun, before anything of a sandbox is made. A kept sandbox needs
// neither reaper nor claim: it stays when this process ends. What goes wrong is logged: the sandbox does without.
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
			p.opts.Logger.Warn("there is no reaper any more: what a kill of this process leaves stays until the next clean-up", "error", err)
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
		p.opts.Logger.Debug("this process does not claim that it lives", "error", err)
	}
	if p.opts.NoReaper {
		p.opts.Logger.Info("no reaper is started, as the options say: what a kill of this process leaves stays until the next clean-up")
		return
	}
	job, err := json.Marshal(reaping{Host: p.compose.Found.Host, Context: p.compose.Found.Context, StateDir: p.stateDir, Speedup: p.opts.speedup})
	if err == nil {
		s.trust, err = reaper.Entrust(job)
	}
	if err != nil {
		p.opts.Logger.Warn("there is no reaper: what a kill of this process leaves stays until the next clean-up", "error", err)
	}
}

// sweepEnd bounds the wait for the end of a sweep's removals that are under way.
const sweepEnd = 10 * time.Second

// leave ends what attend has begun. Where something is left of this provider's sandboxes, the reaper keeps its job: it
// tries again when this process has ended.
func (p *Provider) leave(clean bool) {
	s := &p.presence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept != nil {
		s.stop()
		select {
		case <-s.swept:
		case <-time.After(p.opts.speedup.Of(sweepEnd)): // a daemon that hangs: the calls have limits of their own
		}
	}
	if s.trust != nil && clean {
		s.trust.Release()
		s.trust = nil
	}
	if s.unclaim != nil && clean {
		if err := s.unclaim(); err != nil {
			p.opts.Logger.Debug("this process's claim stays", "error", err)
		}
		s.unclaim = nil
	}
}

// grace is how long what was made is left to the reaper of who made it.
const grace = time.Minute

// isSwept says whether something goes without being asked for, where its owner is dead: no kept sandbox, be its time
// over, no cache that somebody could use, and nothing that was just made.
func isSwept(o sweep.Object, now time.Time) bool {
	return !o.Kept && (!o.Cache || o.Unfinished) && now.Sub(o.Created) > grace
}
