package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/composesdk"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/reaper"
	"github.com/fumehood/fumehood/internal/sweep"
	"github.com/fumehood/fumehood/provider"
)

// reaping is a reaper's job: to remove what its owner has left in a daemon, and sandboxes' folders.
type reaping struct {
	Host     string `json:"host,omitempty"` // as in Options
	Context  string `json:"context,omitempty"`
	StateDir string `json:"state_dir,omitempty"`

	Speedup engine.Speedup `json:"speedup,omitempty"` // as in Options
}

const (
	// reapTime bounds all that a reaper does when its owner has ended.
	reapTime = 5 * time.Minute
	// reapPause is between two looks at what is left; while there is nothing, it grows up to longReapPause.
	reapPause, longReapPause = 250 * time.Millisecond, time.Second
	// reapSettle is how long nothing more may be found until all is removed: what the owner had asked the daemon for
	// just before it ended, the daemon still makes.
	reapSettle = 8 * time.Second
	// settleSweeps is for how many looks, as long as the longest so far, nothing more may be found: a daemon that is slow to
	// tell is slow to make too.
	settleSweeps = 5
)

// RunReaper is for the beginning of a program's main function, before anything else. The first sandbox that a process starts
// has it start this program once more, as its reaper, which removes what the process has left when it was killed. There,
// RunReaper does that, and ends the process; in every other process it returns at once. A program that does not call it
// has no reaper, of which its log tells: then the next start of a sandbox on this machine, or Cleanup, removes what was left.
func RunReaper() {
	orphans := reaper.Wait()
	if orphans == nil {
		return
	}
	code := 0
	if err := reap(orphans); err != nil {
		code = 1
		report(orphans.Owner, err)
	}
	os.Exit(code) //nolint:forbidigo // the process is ours, and its only task is done
}

// reap does what a reaper is there for.
func reap(orphans *reaper.Orphans) error {
	self, err := owner.Self()
	if err != nil {
		return err
	}
	if err := awaitDeath(self, orphans.Owner); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reapTime) //nolint:forbidigo // nobody calls: this is a program's beginning
	defer cancel()
	errs := make([]error, len(orphans.Jobs))
	var wg sync.WaitGroup
	for i, text := range orphans.Jobs {
		wg.Go(func() {
			var job reaping
			if errs[i] = json.Unmarshal(text, &job); errs[i] == nil {
				errs[i] = job.do(ctx, self, orphans.Owner)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// awaitDeath waits until a process has ended whose end of the pipe is closed. The kernel does that a moment before; a
// process that has become another program lives on without the pipe, and holds what it has made.
func awaitDeath(self, id owner.ID) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		switch owner.Judge(self, id) {
		case owner.Dead:
			return nil
		case owner.Unknown:
			return fmt.Errorf("whether process %d has ended cannot be told", id.PID)
		}
		<-time.After(pause)
	}
}

// do removes all that the dead owner has left, and waits for what the daemon still makes. A daemon that does not answer
// is asked again and again.
func (r reaping) do(ctx context.Context, self, dead owner.ID) error {
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
			_, err = c.Engine.Connect(ctx) // which agrees on the API's version
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

// maxReports bounds the file of reports, in bytes.
const maxReports = 1 << 20

// report writes down what a reaper could not remove, for it has nobody to tell: in reaper.log, beside the folders of
// Fumehood's state.
func report(of owner.ID, err error) {
	file, ferr := owner.StateDir("reaper.log")
	if ferr != nil || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(file); err == nil && info.Size() > maxReports {
		flags |= os.O_TRUNC
	}
	f, ferr := os.OpenFile(file, flags, 0o600)
	if ferr != nil {
		return
	}
	defer f.Close()
	slog.New(slog.NewJSONHandler(f, nil)).Error("not all that a process left could be removed; `fumehood cleanup` tries again", "process", of.PID, "error", err)
}
