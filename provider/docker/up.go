package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/compose"
	"github.com/lazaret/lazaret/internal/engine"
)

const (
	// startTimeout bounds the wait for the Engine's report of a start that it has confirmed.
	startTimeout = 30 * time.Second
	// readyTimeout bounds the wait for what has no health check to compute a limit from.
	readyTimeout = 600 * time.Second
	// settleTime is how long a program without a health check has to run to count as started.
	settleTime = 250 * time.Millisecond
)

// start brings the project up, which is created: each service as soon as those are ready that it depends on.
// It returns when all are ready: running, or ended with code 0, and healthy where there is a health check.
// The first failure ends it.
func (sb *sandbox) start(ctx context.Context, project *compose.Project) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if c := sb.spec.Compose; c != nil && c.ReadyTimeout > 0 {
		sb.deadline = time.Now().Add(c.ReadyTimeout)
	}
	optional := sb.optional()
	var wg sync.WaitGroup
	for _, s := range sb.services {
		wg.Go(func() {
			err := s.start(ctx, project)
			if err != nil && !optional[s.Name] {
				fail(err)
			} else if err != nil && ctx.Err() == nil {
				sb.p.opts.Logger.Warn("a service that the others can do without has failed", "sandbox", sb.spec.Name, "service", s.Name, "error", err)
			}
			s.err = err
			close(s.settled)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, s := range sb.services {
		if err := s.check(ctx, s == sb.services[0]); err != nil && !optional[s.Name] {
			return err
		}
		if err := s.forward(ctx); err != nil {
			return err
		}
	}
	return nil
}

// optional are the services that all who depend on them can do without, but for the default one.
func (sb *sandbox) optional() map[string]bool {
	optional, needed := map[string]bool{}, map[string]bool{sb.services[0].Name: true}
	for _, s := range sb.services {
		for _, d := range s.After {
			optional[d.Service] = true
			needed[d.Service] = needed[d.Service] || d.Required
		}
	}
	for name := range needed {
		if needed[name] {
			delete(optional, name)
		}
	}
	return optional
}

// start starts the service's containers when all that it depends on is there, and waits until it is ready.
func (s *service) start(ctx context.Context, project *compose.Project) error {
	for _, d := range s.After {
		if err := s.sb.service(d.Service).meets(ctx, d.Condition); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if d.Required {
				return err
			}
		}
	}
	if err := s.launch(ctx, project); err != nil {
		return err
	}
	s.begun = time.Now()
	close(s.launched)
	if err := s.settles(ctx); err != nil {
		return err
	}
	for _, c := range s.containers {
		if c.Check == nil {
			continue
		}
		if err := s.await(ctx, c, compose.Healthy); err != nil {
			return err
		}
	}
	return nil
}

// settles makes sure that a program that is not ours has not ended at once, and that commands can be run in the
// default service.
func (s *service) settles(ctx context.Context) error {
	if s.Serves {
		return nil
	}
	commands := s == s.sb.services[0]
	until := s.begun.Add(settleTime)
	var err error
	if commands && !s.sb.direct() {
		if _, err = s.guests.of(ctx, ""); err != nil {
			until = time.Now().Add(deathWait) // it may be dead, which is about to be reported
		}
	}
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for _, c := range s.containers {
		if c.Check == nil || err != nil {
			s.sb.p.watch.Until(within, c.ID, func(st engine.ContainerState) bool { return st.Died })
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.check(ctx, commands); err != nil {
		return err
	}
	if err != nil {
		return s.failure("start the guest", err)
	}
	return nil
}

// launch starts the containers and waits until they run, and their guests answer.
func (s *service) launch(ctx context.Context, project *compose.Project) error {
	if s.Serves {
		if err := s.guests.attach(ctx); err != nil {
			return err
		}
	}
	if s.Hooked {
		if err := s.sb.p.compose.Start(ctx, project, s.Name); err != nil {
			return s.failure("start", err)
		}
	} else {
		for _, c := range s.containers {
			if err := s.sb.p.engine.StartContainer(ctx, c.ID); err != nil {
				return s.failure("start", err)
			}
		}
	}
	began, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, c := range s.containers {
		state, ok := s.sb.p.watch.Until(began, c.ID, func(s engine.ContainerState) bool { return s.Started || s.Died })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !ok:
			return s.failure("start", &lazaret.Error{Class: lazaret.ErrInfrastructure, Err: fmt.Errorf("the Engine did not report the start within %v", startTimeout)})
		case s.Serves && state.Died:
			return s.failure("start", &lazaret.Error{Class: lazaret.ErrUnavailable, Err: fmt.Errorf("its main process ended at once with code %d", state.Exit)})
		}
	}
	if !s.Serves {
		return nil
	}
	if err := s.guests.ready(began); err != nil {
		return err
	}
	if s.sb.key != nil {
		return s.guests.reside(began, s.guests.main)
	}
	if err := s.guests.move(began, s.guests.main); err != nil {
		s.sb.p.noSockets(err)
	}
	return nil
}

// meets waits until the service is in the condition that another one waits for.
func (s *service) meets(ctx context.Context, condition string) error {
	waitFor := s.launched
	if condition == compose.Healthy {
		waitFor = s.settled
	}
	select {
	case <-waitFor:
	case <-s.settled: // perhaps it could not be started
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-s.launched:
	default:
		return s.err
	}
	switch condition {
	case compose.Healthy:
		if s.err != nil {
			return s.err
		}
		for _, c := range s.containers {
			if c.Check == nil {
				return s.failure("wait until healthy", &lazaret.Error{Class: lazaret.ErrConfig, Err: errors.New("a service waits until it is healthy, and it has no health check")})
			}
			if state := s.sb.p.watch.State(c.ID); state.Died {
				return s.failed(ctx, c, "wait until healthy", lazaret.ErrUnavailable, fmt.Sprintf("it has exited with code %d, and a service waits until it is healthy", state.Exit))
			}
		}
	case compose.Completed:
		for _, c := range s.containers {
			if err := s.await(ctx, c, compose.Completed); err != nil {
				return err
			}
		}
	}
	return nil
}

// await waits until a container of the service is healthy, or has completed. One that exits with code 0 is
// fine in both cases.
func (s *service) await(ctx context.Context, c engine.State, condition string) error {
	op, watch := "wait until healthy", s.sb.p.watch
	wanted := func(st engine.ContainerState) bool { return st.Health == engine.Healthy || st.Died && st.Exit == 0 }
	if condition == compose.Completed {
		op = "wait until completed"
		wanted = func(st engine.ContainerState) bool { return st.Died && st.Exit == 0 }
	}
	deadline, limit := s.limit(c)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		state, ok := watch.Until(within, c.ID, func(st engine.ContainerState) bool {
			return wanted(st) || st.Died || st.Health == engine.Unhealthy
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !ok:
			return s.failed(ctx, c, op, lazaret.ErrLimit, fmt.Sprintf("it is not after %v, which is the limit", limit))
		case wanted(state):
			return nil
		case !state.Died:
			return s.failed(ctx, c, op, lazaret.ErrUnavailable, "it is unhealthy")
		case !s.restarts(ctx, c):
			return s.failed(ctx, c, op, lazaret.ErrUnavailable, fmt.Sprintf("it has exited with code %d", state.Exit))
		}
		watch.Until(within, c.ID, func(st engine.ContainerState) bool { return !st.Died })
	}
}

// limit is until when a container is waited for, and how long that is.
func (s *service) limit(c engine.State) (time.Time, time.Duration) {
	if !s.sb.deadline.IsZero() {
		return s.sb.deadline, s.sb.spec.Compose.ReadyTimeout
	}
	limit := readyTimeout
	if c.Check != nil {
		limit = c.Check.Limit()
	}
	return s.begun.Add(limit), limit
}

// restarts reports whether the Engine starts a container again that has died.
func (s *service) restarts(ctx context.Context, c engine.State) bool {
	state, err := s.sb.p.engine.Inspect(ctx, c.ID)
	return err == nil && state.Running
}

// check makes sure that none of the service's containers has failed since it was ready; commands need it to
// run.
func (s *service) check(ctx context.Context, commands bool) error {
	for _, c := range s.containers {
		state := s.sb.p.watch.State(c.ID)
		if !state.Died || state.Exit == 0 && !commands || s.restarts(ctx, c) {
			continue
		}
		what := fmt.Sprintf("it has exited with code %d", state.Exit)
		if commands {
			what += ", and commands run in it: it is the default service"
		}
		return s.failed(ctx, c, "start", lazaret.ErrUnavailable, what)
	}
	return nil
}

const (
	// lastLines is how many lines of a failed container's log its error tells.
	lastLines = 10
	// maxLine bounds each, in characters.
	maxLine = 400
)

// failed makes the error of a container that did not come up, with what it has told last.
func (s *service) failed(ctx context.Context, c engine.State, op string, class error, what string) error {
	elapsed := time.Since(s.begun).Round(time.Millisecond)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%v after its start)", what, elapsed)
	if now, err := s.sb.p.engine.Inspect(ctx, c.ID); err == nil && now.Found != "" {
		b.WriteString("; its last check: " + readable(now.Found))
	}
	if log := s.sb.p.engine.LastLog(ctx, c, lastLines); strings.TrimSpace(log) != "" {
		b.WriteString("; its last lines:")
		for line := range strings.Lines(log) {
			b.WriteString("\n    " + readable(line))
		}
	}
	return s.failure(op, &lazaret.Error{Class: class, Err: errors.New(b.String())})
}

// failure says of what service an error is.
func (s *service) failure(op string, err error) error {
	return &lazaret.Error{Op: op, Service: s.Name, Class: lazaret.ClassOf(err), Err: err}
}

// readable is a line that a container wrote, without what could play tricks on a terminal.
func readable(line string) string {
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return ' '
		}
		return r
	}, strings.TrimSpace(line))
	if r := []rune(line); len(r) > maxLine {
		return string(r[:maxLine]) + "..."
	}
	return line
}
