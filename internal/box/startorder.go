package box

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/provider"
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

// Service is one service of a sandbox. It is a provider.ServiceBackend.
type Service struct {
	compose.Service // without a project, Name and Serves are enough
	Info            fumehood.ServiceInfo
	// Units are its containers, at least one. The first runs the commands. A provider without an Engine has one.
	Units    []Unit
	Guests   *Guests
	Forwards *Ports
	// Direct reports whether commands use no guest.
	Direct bool
	// Term reports whether its environment sets the variable TERM.
	Term bool
	// Backend is what the sandbox returns for the service. Nil means the Service itself.
	Backend provider.ServiceBackend
	// Launch starts the units, and returns when they run and their guests answer. If the main process is a guest, it calls
	// Guests.Attach and Guests.Ready.
	Launch func(ctx context.Context) error

	*start // nil if this process has not started it

	known atomic.Pointer[addresses]
}

// start is the start of a service.
type start struct {
	order *order

	launched  chan struct{} // its units are started, and its dependencies are ready
	ready     chan struct{} // its units run, or have exited with code 0, and are healthy
	completed chan struct{} // its units have exited with code 0; oneShot only
	failed    chan struct{} // err is set; the service may have been ready before

	begun    time.Time // when its launch began, then when its units were started; set before they are guarded
	optional bool      // services depend on it, but none requires it; see relate
	oneShot  bool      // another service waits for its completion

	once sync.Once
	err  error
}

// OneShot reports whether another service waits for the completion of this one.
func (s *Service) OneShot() bool { return s.start != nil && s.oneShot }

// order is one call of startAll.
type order struct {
	services []*Service // the default one first
	deadline time.Time  // by which everything must be ready; zero if each service has its own limit
	within   time.Duration
}

// startAll starts the services of a sandbox: each one as soon as its dependencies are ready. The first one is the default
// service. It returns when all services are ready: running or exited with code 0, and healthy if they have a health
// check. The first failure of a service that is not optional ends the start. within bounds all waits together; 0 means
// that each service has its own limit.
func startAll(ctx context.Context, services []*Service, within time.Duration, log *slog.Logger) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	st := &order{services: services, within: within}
	if within > 0 {
		st.deadline = time.Now().Add(within)
	}
	st.relate()
	if s := services[0]; len(services) == 1 && s.Serves && s.Units[0].Check() == nil { // it is ready when it has started
		s.begun = time.Now()
		return s.withTimeout(ctx, "start", "it has not started", s.Launch)
	}
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
			for _, u := range s.Units {
				guards.Go(func() {
					if err := s.guard(ctx, guarding, u); err != nil {
						failed(err)
					}
				})
			}
		}
		starts.Go(func() {
			if err := s.begin(own, guard); err != nil {
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
func (st *order) relate() {
	needed := map[string]bool{st.services[0].Name: true}
	for _, s := range st.services {
		s.start = &start{
			order: st, launched: make(chan struct{}), ready: make(chan struct{}), completed: make(chan struct{}), failed: make(chan struct{}),
		}
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

func (st *order) service(name string) *Service {
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

// begin starts the service's units when its dependencies are ready, starts guarding them, and waits until they are
// ready.
func (s *Service) begin(ctx context.Context, guard func()) error {
	early := s.Early && s.Units[0].Check() == nil
	if err := s.depends(ctx, early); err != nil {
		return err
	}
	s.begun = time.Now()
	if err := s.withTimeout(ctx, "start", "it has not started", s.Launch); err != nil {
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
	for _, u := range s.Units {
		check := u.Check()
		if check == nil {
			continue
		}
		if err := s.await(ctx, u, "wait until healthy", check.Limit(readyTimeout), isHealthy); err != nil {
			return err
		}
	}
	s.Guests.markReady()
	close(s.ready)
	if !s.oneShot {
		return nil
	}
	for _, u := range s.Units {
		if err := s.await(ctx, u, "wait until completed", readyTimeout, hasCompleted); err != nil {
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
		if err := s.order.service(d.Service).meets(ctx, condition); err != nil {
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
	for _, u := range s.Units {
		if u.Check() == nil {
			return s.Failure("wait until healthy", &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("another service waits until it is healthy, but it has no health check")})
		}
		if state := u.State(); state.Died && state.Exit == 0 {
			return s.failing(ctx, u, "wait until healthy", fumehood.ErrUnavailable, "it has exited with code 0, but another service waits until it is healthy")
		}
	}
	return nil
}
