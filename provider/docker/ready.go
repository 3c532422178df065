package docker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
	"github.com/fumehood/fumehood/provider"
)

const (
	// readyTimeout bounds each wait for a service, unless ReadyTimeout bounds them all.
	readyTimeout = 600 * time.Second
	// settleTime is how long a program without a health check has to run to count as started.
	settleTime = 250 * time.Millisecond
)

// stages are the stages of a service's start. Each channel is closed when its stage is reached.
type stages struct {
	launched  chan struct{} // its containers are started, and its dependencies are ready
	ready     chan struct{} // its containers run, or have exited with code 0, and are healthy
	completed chan struct{} // its containers have exited with code 0; oneShot only
	failed    chan struct{} // err is set; the service may have been ready before

	begun    time.Time // when launch began, then when the containers were started; set before they are guarded
	optional bool      // services depend on it, but none requires it; see relate
	oneShot  bool      // another service waits for its completion

	once sync.Once
	err  error
}

func newStages() stages {
	return stages{launched: make(chan struct{}), ready: make(chan struct{}), completed: make(chan struct{}), failed: make(chan struct{})}
}

// fail records why the service is not ready, or no longer ready. It returns false if a failure was recorded before.
func (s *stages) fail(err error) (first bool) {
	s.once.Do(func() {
		s.err, first = err, true
		close(s.failed)
	})
	return first
}

// settles makes sure that a program other than ours has not exited immediately, and that commands can run in the
// default service.
func (s *service) settles(ctx context.Context) error {
	if s.Serves {
		return nil
	}
	if s.commanded() && !s.sb.direct() {
		err := s.timed(ctx, "start the guest", "it does not answer", func(ctx context.Context) error {
			if _, err := s.guests.Own(ctx); err != nil {
				return s.failure("start the guest", err)
			}
			return nil
		})
		if err != nil {
			select {
			case <-ctx.Done(): // the service has died, or the start has ended otherwise
				return context.Cause(ctx)
			case <-time.After(guests.DeathWait):
				return err
			}
		}
	}
	within, cancel := context.WithDeadline(ctx, s.begun.Add(settleTime))
	defer cancel()
	for _, c := range s.containers {
		if c.Check == nil {
			s.sb.p.watch.Until(within, c.ID, hasCompleted)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func hasCompleted(st engine.ContainerState) bool { return st.Died && st.Exit == 0 }

// isHealthy reports whether a container is healthy. A container that has completed counts as healthy.
func isHealthy(st engine.ContainerState) bool { return st.Health == engine.Healthy || hasCompleted(st) }

// commanded reports whether commands run in the service by default, so that it must keep running.
func (s *service) commanded() bool { return s == s.sb.services[0] }

// await waits until the state of a container is as wanted. It does not detect failures: guard does, and cancels ctx.
func (s *service) await(ctx context.Context, c engine.State, op string, usual time.Duration, wanted func(engine.ContainerState) bool) error {
	deadline, limit := s.limit(usual)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_, ok := s.sb.p.watch.Until(within, c.ID, wanted)
	switch {
	case ok:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return s.failing(ctx, c, op, fumehood.ErrLimit, fmt.Sprintf("not reached after %v, which is the limit", limit))
}

// limit returns the deadline of a wait for the service, and the duration of that limit. usual is the duration without a
// ReadyTimeout.
func (s *service) limit(usual time.Duration) (time.Time, time.Duration) {
	if !s.sb.deadline.IsZero() {
		return s.sb.deadline, s.sb.spec.Compose.ReadyTimeout
	}
	return s.begun.Add(usual), usual
}

// timed bounds a step of the service's start that has no timeout of its own.
func (s *service) timed(ctx context.Context, op, late string, step func(context.Context) error) error {
	deadline, limit := s.limit(readyTimeout)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := step(within)
	if err == nil || ctx.Err() != nil || within.Err() == nil {
		return err
	}
	return s.failing(ctx, s.containers[0], op, fumehood.ErrLimit, fmt.Sprintf("%s after %v, which is the limit", late, limit))
}

// guard waits until a container of the service fails, and returns the reason. A container fails if it becomes
// unhealthy, or exits with a code other than 0 and is not restarted. In the default service, it fails if it exits with
// any code and is not restarted. guard returns nil if guarding ends first; guarding is derived from ctx.
func (s *service) guard(ctx, guarding context.Context, c engine.State) error {
	for deaths := 0; ; {
		state, ok := s.sb.p.watch.Until(guarding, c.ID, func(st engine.ContainerState) bool {
			return st.Deaths > deaths || st.Health == engine.Unhealthy
		})
		if !ok || ctx.Err() != nil {
			return nil
		}
		op := s.phase(c, state)
		if state.Deaths == deaths {
			return &provider.Unhealthy{Service: s.Name, Err: s.failing(ctx, c, op, fumehood.ErrUnavailable, "it is unhealthy")}
		}
		if state.Exit == 0 && !s.commanded() || s.restarts(ctx, c) {
			deaths = state.Deaths
			continue
		}
		what := fmt.Sprintf("it has exited with code %d", state.Exit)
		if s.commanded() {
			what += ", and commands run in it: it is the default service"
		}
		return s.failing(ctx, c, op, fumehood.ErrUnavailable, what)
	}
}

// phase returns what the start is waiting for with a container.
func (s *service) phase(c engine.State, now engine.ContainerState) string {
	switch {
	case c.Check != nil && now.Health != engine.Healthy:
		return "wait until healthy"
	case s.oneShot:
		return "wait until completed"
	}
	return "start"
}

// restarts reports whether the Engine has restarted a container that died.
func (s *service) restarts(ctx context.Context, c engine.State) bool {
	state, err := s.sb.p.engine.Inspect(ctx, c.ID)
	return err == nil && state.Running
}
