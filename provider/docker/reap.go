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

// reaping is the job of a reaper: to remove what its owner left in a daemon, and the folders of its sandboxes.
type reaping struct {
	Host     string `json:"host,omitempty"` // as in Options
	Context  string `json:"context,omitempty"`
	StateDir string `json:"state_dir,omitempty"`

	Speedup engine.Speedup `json:"speedup,omitempty"` // as in Options
}

const (
	// reapTime bounds the whole work of a reaper after its owner has ended.
	reapTime = 5 * time.Minute
	// reapPause is the pause between two sweeps. While they find nothing, it grows up to longReapPause.
	reapPause, longReapPause = 250 * time.Millisecond, time.Second
	// reapSettle is how long sweeps must find nothing before the reaper ends. The daemon still carries out requests
	// that the owner sent just before it ended.
	reapSettle = 8 * time.Second
	// settleSweeps is the same in sweeps, measured by the longest one so far. A daemon that is slow to list objects is
	// also slow to create them.
	settleSweeps = 5
)

// RunReaper runs the reaper if this process is one, and returns immediately otherwise. Call it at the beginning of
// main, before anything else. The first sandbox of a process starts the program once more, as the process's reaper. In
// the reaper, RunReaper waits until that process ends, removes what it left, for example when it was killed, and exits.
// A program that does not call RunReaper has no reaper, which is logged. The next start of a sandbox on this machine,
// or Cleanup, then removes what was left.
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

// reap carries out the reaper's jobs.
func reap(orphans *reaper.Orphans) error {
	self, err := owner.Self()
	if err != nil {
		return err
	}
	if err := awaitDeath(self, orphans.Owner); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reapTime) //nolint:forbidigo // start of a program: no caller
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

// awaitDeath waits until a process has ended. The kernel closes the process's end of the pipe shortly before that. A
// process that executes another program also loses the pipe, but lives on and keeps its sandboxes.
func awaitDeath(self, id owner.ID) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		switch owner.Judge(self, id) {
		case owner.Dead:
			return nil
		case owner.Unknown:
			return fmt.Errorf("cannot determine whether process %d has ended", id.PID)
		}
		<-time.After(pause)
	}
}

// do removes everything that the dead owner left, and waits for what the daemon is still creating. It retries until ctx
// ends if the daemon does not answer.
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
			_, err = c.Engine.Connect(ctx) // negotiates the API version
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

// maxReports is the size of the log file, in bytes, above which it is truncated.
const maxReports = 1 << 20

// report logs what a reaper could not remove. A reaper has no output, so it logs to reaper.log in Fumehood's state
// folder.
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
	slog.New(slog.NewJSONHandler(f, nil)).Error("cannot remove everything that a process left; `fumehood cleanup` retries", "process", of.PID, "error", err)
}
