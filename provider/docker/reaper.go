package docker

import (
	"context"
	"time"

	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/reaper"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

// reaping is the job of a reaper: to remove what its owner left in a daemon, and the folders of its sandboxes.
type reaping struct {
	Host     string `json:"host,omitempty"` // as in Options
	Context  string `json:"context,omitempty"`
	StateDir string `json:"state_dir,omitempty"`

	Speedup engine.Speedup `json:"speedup,omitempty"` // as in Options
}

const (
	// reapPause is the pause between two sweeps. While they find nothing, it grows up to longReapPause.
	reapPause, longReapPause = 250 * time.Millisecond, time.Second
	// reapSettle is how long sweeps must find nothing before the reaper ends. The daemon still carries out requests
	// that the owner sent just before it ended.
	reapSettle = 8 * time.Second
	// settleSweeps is the same in sweeps, measured by the longest one so far. A daemon that is slow to list objects is
	// also slow to create them.
	settleSweeps = 5
)

// reaperKind is the kind of this provider's jobs.
var reaperKind = reaper.Kind[reaping]("docker")

// RunReaper runs the reaper if this process is one, and returns immediately otherwise. Call it at the beginning of
// main. It serves all providers that the program imports. The first sandbox of a process starts the program once more, as
// the process's reaper. In the reaper, RunReaper waits until that process ends, removes what it left, for example when it
// was killed, and exits. A program that does not call RunReaper has no reaper, which is logged. The next start of a sandbox
// on this machine, or Cleanup, then removes what was left.
func RunReaper() { reaper.Run() }

// Do removes everything that the dead owner left, and waits for what the daemon is still creating. It retries until ctx
// ends if the daemon does not answer.
func (r reaping) Do(ctx context.Context, self, dead owner.ID) error {
	c, err := composesdk.Connect(ctx, composesdk.Options{Host: r.Host, Context: r.Context, Speedup: r.Speedup})
	if err != nil {
		return err
	}
	defer c.Close()
	s := &sweeper{
		engine: c.Engine, self: self, stateDir: r.StateDir, clock: time.Now, isBad: func(string) bool { return false },
		among: func(o sweep.Object) bool { return o.Owner == dead.String() && (!o.Cache || o.Unfinished) },
	}
	connected, pause := false, reapPause
	settle := r.Speedup.Of(reapSettle)
	for quiet := time.Now(); ; pause = min(2*pause, longReapPause) {
		if !connected {
			err = c.Engine.Connect(ctx) // negotiates the API version
			connected = err == nil
		}
		if connected {
			var plan []provider.Leftover
			begin := time.Now()
			plan, err = s.sweep(ctx, provider.CleanupOptions{})
			settle = max(settle, settleSweeps*time.Since(begin))
			for _, l := range plan {
				if l.Removed {
					quiet, pause = time.Now(), reapPause/2
				}
			}
		}
		if err == nil && time.Since(quiet) > settle {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return err
		}
	}
}
