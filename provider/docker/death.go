package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
)

// deaths is what is known of the end of a service's container. It is collected once for each end, not for each call
// that meets it.
type deaths struct {
	mu     sync.Mutex // held while it is being collected
	began  string     // when the container was started that has died
	report error
	oom    bool // the out-of-memory killer has ended it
}

// death is why nothing can be done in the service any more: an ErrUnavailable with the state of its container, the exit
// code, whether the out-of-memory killer struck, and its last lines. It is nil where the container runs, or the Engine
// does not tell.
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
	case engine.IsGone(err):
		return err
	case err != nil || state.Running || state.Status == "created":
		return nil
	case s.deaths.report != nil && s.deaths.began == state.Began:
		return s.deaths.report
	}
	s.deaths.began, s.deaths.report = state.Began, s.exitReport(ctx, state)
	return s.deaths.report
}

// diedOfMemory reports whether the death that was found last is the out-of-memory killer's doing.
func (s *service) diedOfMemory() bool {
	s.deaths.mu.Lock()
	defer s.deaths.mu.Unlock()
	return s.deaths.oom
}

// exitReport makes the report of a container that has ended.
func (s *service) exitReport(ctx context.Context, state engine.State) error {
	if state.ExitCode == 128+9 && !state.OOMKilled {
		struck := func(c engine.ContainerState) bool { return c.OOMs > c.Before }
		state.OOMKilled = struck(s.sb.p.watch.Await(ctx, s.id, guests.OOMWithin, struck))
	}
	var known *fumehood.Error
	errors.As(state.Unavailable(), &known)
	seen := s.sb.p.watch.Await(ctx, s.id, guests.DeathWait, over)
	// Under gVisor the machine's out-of-memory killer ends the sandbox, whose guest then ends with any code.
	s.deaths.oom = state.OOMKilled && seen.Alone && (state.ExitCode == 128+9 || s.Guest == compose.ReadableGuest)
	if s.deaths.oom || seen.Alone && !s.Serves && !s.oneShot { // our own program has no reason to end but the daemon, or us
		known.Class = fumehood.ErrBroken
	}
	log := s.sb.p.engine.LastLog(ctx, state, lastLines)
	if strings.TrimSpace(log) == "" {
		log = s.guests.Complaint() // not all log drivers can be read
	}
	if strings.TrimSpace(log) == "" {
		return known
	}
	var b strings.Builder
	for line := range strings.Lines(log) {
		b.WriteString("\n    " + readable(line))
	}
	return &fumehood.Error{Class: known.Class, Err: fmt.Errorf("%w; its last lines:%s", known.Err, b.String()), Hint: known.Hint}
}

// alive is the report of a service's death, nil where nothing is known of one.
func (s *service) alive(ctx context.Context) error {
	if !s.sb.p.watch.State(s.id).Died {
		return nil
	}
	return s.death(ctx)
}

// explain gives the service's death as the reason of an error that it has caused.
func (s *service) explain(ctx context.Context, err error) error { return s.guests.Explain(ctx, err) }
