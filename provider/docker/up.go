package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// startTimeout bounds the wait for the Engine's event after a confirmed start, and for a guest's first message.
const startTimeout = 30 * time.Second

// start starts the created project, and returns when all services are ready.
func (sb *sandbox) start(ctx context.Context, project *compose.Project) error {
	var all []*box.Service
	for _, s := range sb.services {
		s.project = project
		all = append(all, s.Service)
	}
	var within time.Duration
	if c := sb.spec.Compose; c != nil {
		within = c.ReadyTimeout
	}
	if err := box.Start(ctx, all, within, sb.p.opts.Logger.With("sandbox", sb.spec.Name)); err != nil {
		return err
	}
	for _, s := range sb.services {
		if err := s.forwardAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// starter starts a service's containers, and observes them by the Engine's events.
type starter struct{ *service }

var _ box.StartHost = starter{}

// Containers returns the number of containers.
func (s starter) Containers() int { return len(s.containers) }

// Check describes the health check of a container.
func (s starter) Check(n int) *box.Check { return (*box.Check)(s.containers[n].Check) }

// Settle waits until the guest answers that an exec starts.
func (s starter) Settle(ctx context.Context) error {
	if s.sb.direct() {
		return nil
	}
	_, err := s.guests.Own(ctx)
	if err == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // the service has died, or the start has ended otherwise
			return context.Cause(ctx)
		}
	case <-time.After(box.DeathWait):
	}
	return s.Failure("start the guest", err)
}

// Ready records that an exit of the service's own program breaks the service from now on.
func (s starter) Ready(ctx context.Context) { s.guests.Settled(ctx) }

func stateOf(st engine.ContainerState) box.StartState {
	return box.StartState{Died: st.Died, Deaths: st.Deaths, Exit: st.Exit, Health: st.Health}
}

// State returns what the events say about a container.
func (s starter) State(n int) box.StartState { return stateOf(s.sb.p.watch.State(s.containers[n].ID)) }

// Until waits for events of a container.
func (s starter) Until(ctx context.Context, n int, wanted func(box.StartState) bool) (box.StartState, bool) {
	state, ok := s.sb.p.watch.Until(ctx, s.containers[n].ID, func(st engine.ContainerState) bool { return wanted(stateOf(st)) })
	return stateOf(state), ok
}

// Restarts reports whether the Engine has restarted a container that died.
func (s starter) Restarts(ctx context.Context, n int) bool {
	state, err := s.sb.p.engine.Inspect(ctx, s.containers[n].ID)
	return err == nil && state.Running
}

// Evidence returns what the Engine has kept of a container's last check and log.
func (s starter) Evidence(ctx context.Context, n, lines int) (check, log string) {
	if now, err := s.sb.p.engine.Inspect(ctx, s.containers[n].ID); err == nil {
		check = now.Found
	}
	return check, s.sb.p.engine.LastLog(ctx, s.containers[n], lines)
}

// endedAtOnce returns the error for a guest that exited during the start. A guest exits with code 0 if its connection
// ended.
func endedAtOnce(state engine.ContainerState) error {
	err := &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("its main process exited immediately with code %d", state.Exit)}
	if state.Exit == 0 {
		return box.Lost{Err: err}
	}
	return err
}

// Launch starts the containers and waits until they run and their guests answer.
func (s starter) Launch(ctx context.Context) error {
	if s.Serves {
		if err := s.guests.Attach(ctx); err != nil {
			return err
		}
	}
	if s.Hooked {
		owner, err := s.fileOwner(ctx, "")
		if err == nil {
			err = s.sb.p.compose.Start(ctx, s.project, s.Name, owner)
		}
		if err != nil {
			return s.Failure("start", s.portTaken(err))
		}
	} else {
		for _, c := range s.containers {
			if err := s.sb.p.engine.StartContainer(ctx, c.ID); err != nil {
				return s.Failure("start", s.portTaken(err))
			}
		}
	}
	began, cancel := context.WithTimeoutCause(ctx, s.sb.p.guestWithin, box.Slow(s.sb.p.guestWithin))
	defer cancel()
	for _, c := range s.containers {
		state, ok := s.sb.p.watch.Until(began, c.ID, func(s engine.ContainerState) bool { return s.Started || s.Died })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !ok:
			return s.Failure("start", &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the Engine did not report the start within %v", startTimeout)})
		case s.Serves && state.Died:
			return s.Failure("start", endedAtOnce(state))
		}
	}
	if !s.Serves {
		return nil
	}
	if err := s.guests.Ready(began); err != nil {
		if began.Err() != nil {
			err = s.seen(ctx, context.Cause(began), s.guests.Complaint())
		}
		return s.Failure("start the guest", err)
	}
	return nil
}

// portTaken makes the error about a port in use an ErrConfig if the service asks for certain ports of the host. If the
// Engine chose the port, it remains an infrastructure failure.
func (s *service) portTaken(err error) error {
	fixed := slices.ContainsFunc(s.Ports, func(p fumehood.Port) bool { return p.Host != 0 })
	var e *fumehood.Error
	if !fixed || !errors.Is(err, engine.ErrPort) || !errors.As(err, &e) {
		return err
	}
	return &fumehood.Error{Op: e.Op, Class: fumehood.ErrConfig, Err: e.Err, Hint: "free the port, or publish another; the Engine chooses a free one if the host's port is not set"}
}
