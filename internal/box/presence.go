package box

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/reaper"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

// Presence is what a provider runs beside its sandboxes, from its first one until it is closed: a reaper, which removes what
// this process leaves when it is killed, a claim that the process lives, and a sweep, which removes what dead processes left.
type Presence struct {
	// Kind and Job are those of the reaper. Without a Job there is none.
	Kind string
	Job  reaper.Job
	// Claims is the kind of the folder for claims, see owner.StateDir; empty for no claim.
	Claims string
	// Sweep removes what was left, once. Its results are logged. Nil means not at all.
	Sweep func(ctx context.Context) ([]provider.Leftover, error)
	// Patience is how long Leave waits for the sweep, after its context has ended. What the sweep waits for may hang. 0 means
	// DefaultPatience.
	Patience time.Duration
	Log      *slog.Logger // not nil

	mu      sync.Mutex
	begun   bool
	trust   *reaper.Trust
	unclaim func() error
	stop    context.CancelFunc // of the sweep
	swept   chan struct{}      // closed when the sweep has ended
}

// DefaultPatience is the usual Presence.Patience.
const DefaultPatience = 10 * time.Second

// unreaped is what a log says about sandboxes without a reaper.
const unreaped = ": if this process is killed, its sandboxes stay until the next cleanup"

// Attend starts what is not running yet. It is called before anything of a sandbox is made. A sandbox that outlives this
// process from its first object on needs neither reaper nor claim. Errors are only logged, and the sandbox starts anyway.
func (p *Presence) Attend(ctx context.Context, outlives bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swept == nil && p.Sweep != nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		p.stop, p.swept = stop, make(chan struct{})
		go func() {
			defer close(p.swept)
			plan, err := p.Sweep(ctx)
			sweep.Log(ctx, p.Log, plan, err)
		}()
	}
	if outlives {
		return
	}
	if p.trust != nil {
		if err := p.trust.Ensure(); err != nil {
			p.Log.Warn("the reaper cannot be restarted"+unreaped, "error", err)
		}
	}
	if p.begun {
		return
	}
	p.begun = true
	if p.Claims != "" {
		dir, err := owner.StateDir(p.Claims)
		if err == nil {
			p.unclaim, err = owner.Attend(dir)
		}
		if err != nil {
			p.Log.Debug("this process cannot claim that it lives", "error", err)
		}
	}
	if p.Job == nil {
		p.Log.Info("no reaper is started, as the options require" + unreaped)
		return
	}
	var err error
	if p.trust, err = reaper.Entrust(p.Kind, p.Job); err != nil {
		p.Log.Warn("the reaper cannot be started"+unreaped, "error", err)
	}
}

// Leave stops what Attend has started. If clean is false, something of a sandbox is left. The reaper then keeps its job, and
// tries again when this process has ended.
func (p *Presence) Leave(clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swept != nil {
		p.stop()
		select {
		case <-p.swept:
		case <-time.After(cmp.Or(p.Patience, DefaultPatience)):
		}
	}
	if !clean {
		return
	}
	if p.trust != nil {
		p.trust.Release()
		p.trust = nil
	}
	if p.unclaim != nil {
		if err := p.unclaim(); err != nil {
			p.Log.Debug("the claim of this process cannot be removed", "error", err)
		}
		p.unclaim = nil
	}
}
