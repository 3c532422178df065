package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
)

// startTimeout bounds the wait for the Engine's event after a confirmed start, and for a guest's first message.
const startTimeout = 30 * time.Second

// start starts the created project: each service as soon as its dependencies are ready. It returns when all services
// are ready: running or exited with code 0, and healthy if they have a health check. The first failure of a service
// that is not optional ends the start.
func (sb *sandbox) start(ctx context.Context, project *compose.Project) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if c := sb.spec.Compose; c != nil && c.ReadyTimeout > 0 {
		sb.deadline = time.Now().Add(c.ReadyTimeout)
	}
	sb.relate()
	guarding, over := context.WithCancel(ctx)
	defer over()
	var starts, guards sync.WaitGroup
	for _, s := range sb.services {
		own, end := context.WithCancelCause(ctx)
		failed := func(err error) {
			if s.fail(err) && s.optional && ctx.Err() == nil {
				sb.p.opts.Logger.Warn("an optional service failed", "sandbox", sb.spec.Name, "service", s.Name, "error", err)
			}
			if !s.optional {
				fail(err)
			}
			end(err)
		}
		guard := func() {
			for _, c := range s.containers {
				guards.Go(func() {
					if err := s.guard(ctx, guarding, c); err != nil {
						failed(err)
					}
				})
			}
		}
		starts.Go(func() {
			if err := s.start(own, project, guard); err != nil {
				failed(err)
			}
			end(nil)
		})
	}
	starts.Wait()
	over()
	guards.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, s := range sb.services {
		if err := s.forwardAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// relate sets which services are optional and which are one-shots. A service is optional if other services depend on
// it, none of them requires it, and it is not the default one. It is a one-shot if another service waits for its
// completion.
func (sb *sandbox) relate() {
	needed := map[string]bool{sb.services[0].Name: true}
	for _, s := range sb.services {
		for _, d := range s.After {
			on := sb.service(d.Service)
			on.optional = true
			needed[d.Service] = needed[d.Service] || d.Required
			on.oneShot = on.oneShot || d.Condition == compose.Completed
		}
	}
	for _, s := range sb.services {
		s.optional = s.optional && !needed[s.Name]
	}
}

// start starts the service's containers when its dependencies are ready, starts guarding them, and waits until they are
// ready.
func (s *service) start(ctx context.Context, project *compose.Project, guard func()) error {
	early := s.Early && s.containers[0].Check == nil
	if err := s.depends(ctx, early); err != nil {
		return err
	}
	s.begun = time.Now()
	err := s.timed(ctx, "start", "it has not started", func(ctx context.Context) error { return s.launch(ctx, project) })
	if err != nil {
		return err
	}
	s.begun = time.Now()
	guard()
	if early {
		if err := s.depends(ctx, false); err != nil {
			return err
		}
	}
	close(s.launched)
	if err := s.settles(ctx); err != nil {
		return err
	}
	for _, c := range s.containers {
		if c.Check == nil {
			continue
		}
		if err := s.await(ctx, c, "wait until healthy", c.Check.Limit(readyTimeout), isHealthy); err != nil {
			return err
		}
	}
	s.guests.Settled(ctx)
	close(s.ready)
	if !s.oneShot {
		return nil
	}
	for _, c := range s.containers {
		if err := s.await(ctx, c, "wait until completed", readyTimeout, hasCompleted); err != nil {
			return err
		}
	}
	close(s.completed)
	return nil
}

// depends waits until the service's dependencies are ready. A service that is started early does not wait for their
// health: it only waits until they are started.
func (s *service) depends(ctx context.Context, early bool) error {
	for _, d := range s.After {
		condition := d.Condition
		if early && condition == compose.Healthy {
			condition = compose.Started
		}
		if err := s.sb.service(d.Service).meets(ctx, condition); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if d.Required {
				return err
			}
		}
	}
	return nil
}

// endedAtOnce returns the error for a guest that exited during the start. A guest exits with code 0 if its connection
// ended.
func endedAtOnce(state engine.ContainerState) error {
	err := &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("its main process exited immediately with code %d", state.Exit)}
	if state.Exit == 0 {
		return guests.Lost{Err: err}
	}
	return err
}

// launch starts the containers and waits until they run and their guests answer.
func (s *service) launch(ctx context.Context, project *compose.Project) error {
	if s.Serves {
		if err := s.guests.Attach(ctx); err != nil {
			return err
		}
	}
	if s.Hooked {
		if err := s.sb.p.compose.Start(ctx, project, s.Name); err != nil {
			return s.failure("start", s.portTaken(err))
		}
	} else {
		for _, c := range s.containers {
			if err := s.sb.p.engine.StartContainer(ctx, c.ID); err != nil {
				return s.failure("start", s.portTaken(err))
			}
		}
	}
	began, cancel := context.WithTimeoutCause(ctx, s.sb.p.guestWithin, guests.Slow(s.sb.p.guestWithin))
	defer cancel()
	for _, c := range s.containers {
		state, ok := s.sb.p.watch.Until(began, c.ID, func(s engine.ContainerState) bool { return s.Started || s.Died })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !ok:
			return s.failure("start", &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the Engine did not report the start within %v", startTimeout)})
		case s.Serves && state.Died:
			return s.failure("start", endedAtOnce(state))
		}
	}
	if !s.Serves {
		return nil
	}
	if err := s.guests.Ready(began); err != nil {
		if began.Err() != nil {
			err = s.seen(ctx, context.Cause(began), s.guests.Complaint())
		}
		return s.failure("start the guest", err)
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

// meets waits until the service meets the condition of a service that depends on it.
func (s *service) meets(ctx context.Context, condition string) error {
	reached := s.launched
	switch condition {
	case compose.Healthy:
		reached = s.ready
	case compose.Completed:
		reached = s.completed
	}
	select {
	case <-reached:
	case <-s.failed:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if condition != compose.Healthy {
		return nil
	}
	for _, c := range s.containers {
		if c.Check == nil {
			return s.failure("wait until healthy", &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("another service waits until it is healthy, but it has no health check")})
		}
		if state := s.sb.p.watch.State(c.ID); state.Died && state.Exit == 0 {
			return s.failing(ctx, c, "wait until healthy", fumehood.ErrUnavailable, "it has exited with code 0, but another service waits until it is healthy")
		}
	}
	return nil
}
