package box

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
)

// Host starts and observes the containers of a service, which are numbered from 0. A provider without an Engine has one
// for each service: its main program. The methods are called concurrently.
type StartHost interface {
	// Containers returns the number of containers, at least 1.
	Containers() int
	// Check describes the health check of a container; nil without one.
	Check(n int) *Check
	// Launch starts the containers, and returns when they run and their guests answer.
	Launch(ctx context.Context) error
	// Settle returns when commands can run in the service. It is called for the default service only, if its main
	// process is no guest.
	Settle(ctx context.Context) error
	// Ready is called once when the service is ready.
	Ready(ctx context.Context)
	// State returns what has become of a container.
	State(n int) StartState
	// Until waits until the state of a container is as wanted. It returns false if ctx ends first.
	Until(ctx context.Context, n int, wanted func(StartState) bool) (StartState, bool)
	// Restarts reports whether a container that died is started again, or was.
	Restarts(ctx context.Context, n int) bool
	// Evidence returns the output of a container's last health check and the last lines of its log. Both may be empty.
	Evidence(ctx context.Context, n, lines int) (check, log string)
}

// StartState is the state of a container.
type StartState struct {
	Died   bool
	Deaths int    // the number of deaths
	Exit   int    // the last exit code, if there was one
	Health string // Healthy, Unhealthy, or empty as long as there is no result since the last start
}

// Results of health checks.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// Check describes how often a container's health is checked, with the defaults filled in.
type Check struct {
	StartPeriod, Interval, Timeout time.Duration
	Retries                        int
}

// startAndEnd is how long the start of a check and its end, after a timeout, may take on a busy machine.
const startAndEnd = time.Second

// Limit returns the time after the start within which the health is decided. It covers the start period, a check that
// is running when that period ends, and all retries. The result is at most most, because an image may ask for hours or
// for values that overflow.
func (c Check) Limit(most time.Duration) time.Duration {
	one := min(c.Interval, most) + min(c.Timeout, most) + startAndEnd
	if c.Retries > int(most/one) {
		return most
	}
	return min(min(c.StartPeriod, most)+time.Duration(1+c.Retries)*one, most)
}

// Service is the start of one service.
type Service struct {
	compose.Service
	host StartHost
	of   *start

	launched  chan struct{} // its containers are started, and its dependencies are ready
	ready     chan struct{} // its containers run, or have exited with code 0, and are healthy
	completed chan struct{} // its containers have exited with code 0; oneShot only
	failed    chan struct{} // err is set; the service may have been ready before

	begun    time.Time // when its launch began, then when its containers were started; set before they are guarded
	optional bool      // services depend on it, but none requires it; see relate
	oneShot  bool      // another service waits for its completion

	once sync.Once
	err  error
}

// NewService returns a service that Start starts.
func NewService(s compose.Service, host StartHost) *Service {
	return &Service{
		Service: s, host: host,
		launched: make(chan struct{}), ready: make(chan struct{}), completed: make(chan struct{}), failed: make(chan struct{}),
	}
}

// OneShot reports whether another service waits for the completion of this one.
func (s *Service) OneShot() bool { return s.oneShot }

// start is one call of Start.
type start struct {
	services []*Service // the default one first
	deadline time.Time  // by which everything must be ready; zero if each service has its own limit
	within   time.Duration
}

// Start starts the services of a project: each one as soon as its dependencies are ready. The first one is the default
// service. It returns when all services are ready: running or exited with code 0, and healthy if they have a health
// check. The first failure of a service that is not optional ends the start. within bounds all waits together; 0 means
// that each service has its own limit.
func Start(ctx context.Context, services []*Service, within time.Duration, log *slog.Logger) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	st := &start{services: services, within: within}
	if within > 0 {
		st.deadline = time.Now().Add(within)
	}
	st.relate()
	guarding, over := context.WithCancel(ctx)
	defer over()
	var starts, guards sync.WaitGroup
	for _, s := range services {
		own, end := context.WithCancelCause(ctx)
		failed := func(err error) {
			if s.fail(err) && s.optional && ctx.Err() == nil {
				log.Warn("an optional service failed", "service", s.Name, "error", err)
			}
			if !s.optional {
				fail(err)
			}
			end(err)
		}
		guard := func() {
			for n := range s.host.Containers() {
				guards.Go(func() {
					if err := s.guard(ctx, guarding, n); err != nil {
						failed(err)
					}
				})
			}
		}
		starts.Go(func() {
			if err := s.start(own, guard); err != nil {
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
	return nil
}

// relate sets which services are optional and which are one-shots. A service is optional if other services depend on
// it, none of them requires it, and it is not the default one. It is a one-shot if another service waits for its
// completion.
func (st *start) relate() {
	needed := map[string]bool{st.services[0].Name: true}
	for _, s := range st.services {
		s.of = st
	}
	for _, s := range st.services {
		for _, d := range s.After {
			on := st.service(d.Service)
			on.optional = true
			needed[d.Service] = needed[d.Service] || d.Required
			on.oneShot = on.oneShot || d.Condition == compose.Completed
		}
	}
	for _, s := range st.services {
		s.optional = s.optional && !needed[s.Name]
	}
}

func (st *start) service(name string) *Service {
	return st.services[slices.IndexFunc(st.services, func(s *Service) bool { return s.Name == name })] // After names started services only
}

// fail records why the service is not ready, or no longer ready. It returns false if a failure was recorded before.
func (s *Service) fail(err error) (first bool) {
	s.once.Do(func() {
		s.err, first = err, true
		close(s.failed)
	})
	return first
}

// start starts the service's containers when its dependencies are ready, starts guarding them, and waits until they are
// ready.
func (s *Service) start(ctx context.Context, guard func()) error {
	early := s.Early && s.host.Check(0) == nil
	if err := s.depends(ctx, early); err != nil {
		return err
	}
	s.begun = time.Now()
	if err := s.timed(ctx, "start", "it has not started", s.host.Launch); err != nil {
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
	for n := range s.host.Containers() {
		check := s.host.Check(n)
		if check == nil {
			continue
		}
		if err := s.await(ctx, n, "wait until healthy", check.Limit(readyTimeout), isHealthy); err != nil {
			return err
		}
	}
	s.host.Ready(ctx)
	close(s.ready)
	if !s.oneShot {
		return nil
	}
	for n := range s.host.Containers() {
		if err := s.await(ctx, n, "wait until completed", readyTimeout, hasCompleted); err != nil {
			return err
		}
	}
	close(s.completed)
	return nil
}

// depends waits until the service's dependencies are ready. A service that is started early does not wait for their
// health: it only waits until they are started.
func (s *Service) depends(ctx context.Context, early bool) error {
	for _, d := range s.After {
		condition := d.Condition
		if early && condition == compose.Healthy {
			condition = compose.Started
		}
		if err := s.of.service(d.Service).meets(ctx, condition); err != nil {
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

// meets waits until the service meets the condition of a service that depends on it.
func (s *Service) meets(ctx context.Context, condition string) error {
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
	for n := range s.host.Containers() {
		if s.host.Check(n) == nil {
			return s.Failure("wait until healthy", &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("another service waits until it is healthy, but it has no health check")})
		}
		if state := s.host.State(n); state.Died && state.Exit == 0 {
			return s.failing(ctx, n, "wait until healthy", fumehood.ErrUnavailable, "it has exited with code 0, but another service waits until it is healthy")
		}
	}
	return nil
}
