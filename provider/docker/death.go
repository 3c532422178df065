package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// deaths caches the report on how a service's container died. The report is collected once per death, not once per call
// that finds it.
type deaths struct {
	mu     sync.Mutex // held while a report is collected
	began  string     // start time of the container that died
	report error
	oom    bool // the out-of-memory killer killed it
}

// death returns why the service is unavailable: an ErrUnavailable with the container's state, exit code, last log
// lines, and whether the out-of-memory killer acted. It returns nil if the container runs, or if the Engine does not
// answer.
func (s *service) death(ctx context.Context) error {
	s.deaths.mu.Lock()
	defer s.deaths.mu.Unlock()
	if s.deaths.report != nil && s.sb.p.watch.State(s.id).Died {
		return s.deaths.report
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	switch {
	case engine.IsGone(err), err == nil && state.Status == "removing":
		return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("container %s was removed", s.Info.Container), Hint: "start a new sandbox"}
	case err != nil || state.Running || state.Status == "created":
		return nil
	case s.deaths.report != nil && s.deaths.began == state.Began:
		return s.deaths.report
	}
	s.deaths.began, s.deaths.report = state.Began, s.exitReport(ctx, state)
	return s.deaths.report
}

// diedOfMemory reports whether the out-of-memory killer caused the last death found.
func (s *service) diedOfMemory() bool {
	s.deaths.mu.Lock()
	defer s.deaths.mu.Unlock()
	return s.deaths.oom
}

// exitReport returns the report on a container that has exited.
func (s *service) exitReport(ctx context.Context, state engine.State) error {
	if state.ExitCode == 128+9 && !state.OOMKilled {
		struck := func(c box.State) bool { return c.OOMs > c.Before }
		state.OOMKilled = struck(s.sb.p.watch.Await(ctx, s.id, box.OOMWithin, struck))
	}
	var known *fumehood.Error
	errors.As(state.Unavailable(), &known)
	seen := s.sb.p.watch.Await(ctx, s.id, box.DeathWait, func(c box.State) bool { return !c.Lives })
	// Under gVisor, the out-of-memory killer kills the sandbox process, and the guest then exits with any code.
	s.deaths.oom = state.OOMKilled && seen.Alone && (state.ExitCode == 128+9 || s.Guest == compose.ReadableGuest)
	// There root may also kill the guest, and too many processes end gVisor itself.
	inside := seen.Alone && !seen.Signaled && s.Serves && s.Guest == compose.ReadableGuest && state.ExitCode != 0 && s.sb.Ran.Load()
	if s.deaths.oom || inside || seen.Alone && !s.Serves && !s.OneShot() { // our own program only ends if the daemon or we end it
		known.Class = fumehood.ErrBroken
	}
	switch { // a process in the container cannot kill our own program
	case s.deaths.oom:
	case seen.Signaled:
		known.Err = fmt.Errorf("%w: it was killed or stopped through the Engine", known.Err)
	case s.Serves && state.ExitCode == 0: // it ends by itself only without a host
		known.Err = fmt.Errorf("%s: %w", box.CutReason, known.Err)
	case seen.Alone && s.Serves && s.Guest != compose.ReadableGuest && state.ExitCode == 128+9:
		known.Err = fmt.Errorf("%w: it was killed from outside", known.Err)
	}
	log := s.sb.p.engine.LastLog(ctx, state, box.LastLines)
	if strings.TrimSpace(log) == "" {
		log = s.Guests.Complaint() // not all log drivers support reading
	}
	if strings.TrimSpace(log) == "" {
		return known
	}
	var b strings.Builder
	for line := range strings.Lines(log) {
		b.WriteString("\n    " + box.Readable(line))
	}
	return &fumehood.Error{Class: known.Class, Err: fmt.Errorf("%w; its last lines:%s", known.Err, b.String()), Hint: known.Hint}
}

// alive returns the report on the service's death, or nil if no death is known.
func (s *service) alive(ctx context.Context) error {
	if !s.sb.p.watch.State(s.id).Died {
		return nil
	}
	return s.death(ctx)
}

// explain returns the service's death in place of an error that the death caused.
func (s *service) explain(ctx context.Context, err error) error { return s.Guests.Explain(ctx, err) }
