package docker

import (
	"context"
	"time"

	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

// claimsKind is the kind of the folder in which processes claim that they live: see owner.StateDir.
const claimsKind = "owners"

// live sets how the provider's sandboxes live, and what runs beside them.
func (p *Provider) live() {
	p.life.Driver, p.life.Alone, p.life.Open.AtOnce = driver{p}, true, box.AtOnce
	at := &p.life.Presence
	at.Kind, at.Claims, at.Patience, at.Log = reaperKind, claimsKind, p.opts.speedup.Of(box.DefaultPatience), p.opts.Logger
	if !p.opts.NoReaper {
		at.Job = reaping{Host: p.compose.Found.Host, Context: p.compose.Found.Context, StateDir: p.stateDir, Speedup: p.opts.speedup}
	}
	if !p.opts.NoSweep {
		at.Sweep = func(ctx context.Context) ([]provider.Leftover, error) {
			return p.sweeper(nil, func(o sweep.Object) bool { return isSwept(o, p.clock()) }).sweep(ctx, provider.CleanupOptions{})
		}
	}
}

// grace is how long new objects are left to the reaper of the process that made them.
const grace = time.Minute

// isSwept reports whether an object of a dead owner is removed without a request by the user. Kept sandboxes are not,
// even after they have expired. Nor are caches that are still usable, and objects that were just created.
func isSwept(o sweep.Object, now time.Time) bool {
	return !o.Kept && (!o.Cache || o.Unfinished) && now.Sub(o.Created) > grace
}
