package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
)

// startTimeout bounds the wait for the Engine's report of a start that it has confirmed, and for a guest's word.
const startTimeout = 30 * time.Second

// start brings the project up, which is created: each service as soon as those are ready that it depends on.
// It returns when all are ready: running, or ended with code 0, and healthy where there is a health check.
// What fails until then ends it at once.
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
				sb.p.opts.Logger.Warn("a service that the others can do without has failed", "sandbox", sb.spec.Name, "service", s.Name, "error", err)
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

// relate tells the services what others expect of them: which are optional, which all who depend on them can do
// without, but for the default one; and which are to complete.
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

// start starts the service's containers when all that it depends on is there, has them guarded, and waits until
// they are ready.
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

// depends waits until all is there that the service depends on. What is started early does not wait for the
// others' health: that they have been started is enough.
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

// endedAtOnce is the error about a guest that has ended during the start. It ends with code 0 where its connection has.
func endedAtOnce(state engine.ContainerState) error {
	err := &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("its main process ended at once with code %d", state.Exit)}
	if state.Exit == 0 {
		return guests.Lost{Err: err}
	}
	return err
}

// launch starts the containers and waits until they run, and their guests answer.
func (s *service) launch(ctx context.Context, project *compose.Project) error {
	if s.Serves {
		if err := s.guests.Attach(ctx); err != nil {
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

// meets waits until the service is in the condition that another one waits for.
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
			return s.failure("wait until healthy", &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("a service waits until it is healthy, and it has no health check")})
		}
		if state := s.sb.p.watch.State(c.ID); state.Died && state.Exit == 0 {
			return s.failing(ctx, c, "wait until healthy", fumehood.ErrUnavailable, "it has exited with code 0, and a service waits until it is healthy")
		}
	}
	return nil
}
