package reaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/owner"
)

// Do carries out a job of a process that has ended. self is the reaper's process.
type Do func(ctx context.Context, self, dead owner.ID, job json.RawMessage) error

// runTime bounds the whole work of a reaper after its owner has ended.
const runTime = 5 * time.Minute

// failed reports whether a job of a kind that Run has carried out has failed.
var failed bool

// Run must be called at the beginning of main, for each kind. In a process that is not a reaper it returns immediately,
// and permits Entrust for the kind. In a reaper it waits until the owner has ended and carries out the jobs of the kind.
// If jobs of other kinds remain, it returns, so that the next Run does them. Otherwise it exits the process.
func Run(kind string, do Do) {
	o := waited()
	if o == nil {
		current.mu.Lock()
		defer current.mu.Unlock()
		current.possible = append(current.possible, kind)
		return
	}
	if err := o.runJobs(kind, do); err != nil {
		failed = true
		report(o.owner, err)
	}
	o.tasks = slices.DeleteFunc(o.tasks, func(t task) bool { return t.Kind == kind })
	if len(o.tasks) > 0 {
		return
	}
	code := 0
	if failed {
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // the process is ours, and its only task is done
}

// runJobs carries out the jobs of a kind.
func (o *orphans) runJobs(kind string, do Do) error {
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
		if t.Kind == kind {
			wg.Go(func() { errs[i] = do(ctx, self, o.owner, t.Job) })
		}
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
