package reaper

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

	"github.com/fumehood/fumehood/internal/owner"
)

// Job is what a reaper does when its owner has ended. It is sent to the reaper as JSON.
type Job interface {
	// Do does the job. self is the reaper's process, dead the owner.
	Do(ctx context.Context, self, dead owner.ID) error
}

// kinds are the jobs that this program can do, by the name of their kind. It is complete before main begins.
var kinds = map[string]func(ctx context.Context, self, dead owner.ID, text json.RawMessage) error{}

// Kind adds a kind of jobs, and returns its name. Call it only to initialize a variable of a package, so that the reaper has
// the kinds that its owner has.
func Kind[J Job](name string) string {
	kinds[name] = func(ctx context.Context, self, dead owner.ID, text json.RawMessage) error {
		var job J
		if err := json.Unmarshal(text, &job); err != nil {
			return err
		}
		return job.Do(ctx, self, dead)
	}
	return name
}

// runTime bounds the whole work of a reaper after its owner has ended.
const runTime = 5 * time.Minute

// Run must be called at the beginning of main. In a process that is not a reaper it returns immediately, and permits
// Entrust. In a reaper it waits until the owner has ended, does the jobs, and exits the process.
func Run() {
	o := waited()
	if o == nil {
		current.mu.Lock()
		defer current.mu.Unlock()
		current.possible = true
		return
	}
	code := 0
	if err := o.runJobs(); err != nil {
		report(o.owner, err)
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // the process is ours, and its only task is done
}

// runJobs does all jobs at once.
func (o *orphans) runJobs() error {
	self, err := owner.Self()
	if err != nil {
		return err
	}
	if err := awaitDeath(self, o.owner); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTime) //nolint:forbidigo // start of a program: no caller
	defer cancel()
	errs := make([]error, len(o.tasks))
	var wg sync.WaitGroup
	for i, t := range o.tasks {
		wg.Go(func() {
			errs[i] = fmt.Errorf("unknown job %q", t.Kind) // where the program's file may have been replaced
			if do := kinds[t.Kind]; do != nil {
				errs[i] = do(ctx, self, o.owner, t.Job)
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
		case owner.Alive:
		}
		<-time.After(pause)
	}
}

// maxReports is the size of the log file, in bytes, above which it is truncated.
const maxReports = 1 << 20

// report logs what a reaper could not remove. A reaper has no output, so it logs to reaper.log in Fumehood's state
// folder.
func report(id owner.ID, err error) {
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
	slog.New(slog.NewJSONHandler(f, nil)).Error("cannot remove everything that a process left; `fumehood cleanup` retries", "process", id.PID, "error", err)
}
