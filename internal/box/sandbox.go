package box

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Body is a sandbox as its driver has it. It embeds a Sandbox, from which it has all of provider.Backend.
type Body interface {
	provider.Backend
	Base() *Sandbox
	// Prepare gets what the sandbox needs before anything of it can be made: its images.
	Prepare(ctx context.Context) error
	// Admit waits until there is room for the sandbox, or returns an ErrLimit. started is called when its start has
	// ended, left when it is gone. Both may be nil.
	Admit(ctx context.Context) (started, left func(), err error)
	// Make creates the sandbox, with its Marks before anything else or together with it, sets Services, and calls
	// StartServices. A name that another sandbox has is an ErrConfig. What it has made when it fails, Remove removes.
	Make(ctx context.Context) error
	// Remove calls Disconnect, ends everything that Make has made, and removes it. It is called again after an error, and
	// also if Make has made nothing. The sandbox may be gone by then, and another one may have its name.
	Remove(ctx context.Context) error
	// Leave calls Disconnect, and releases what this process has of a kept sandbox, which goes on.
	Leave()
}

// Sandbox is what the backends of all providers have in common. Its driver sets the exported fields.
type Sandbox struct {
	Spec     fumehood.Spec
	Rec      *provider.Recorder // records the start; nil if another process started it
	About    fumehood.Info      // what is known besides the services
	Key      []byte             // the secret of a kept sandbox's guests; nil if there is none
	Expires  time.Time          // of a kept sandbox that this process starts; zero if it does not expire
	Services []*Service         // the default one first; nil before they are made
	Ran      atomic.Bool        // a command has run, started by any process

	provider string
	body     Body
	place    *Place
	left     func()
	kept     atomic.Bool // it is complete, and outlives this process

	mu   sync.Mutex // held during removal
	gone bool
}

// Base returns what all providers have in common.
func (s *Sandbox) Base() *Sandbox { return s }

// Kept reports whether the sandbox has started and outlives this process.
func (s *Sandbox) Kept() bool { return s.kept.Load() }

// Info returns a description of the sandbox.
func (s *Sandbox) Info() fumehood.Info {
	info := s.About
	info.Name, info.Provider, info.Services = s.Spec.Name, s.provider, nil
	for _, svc := range s.Services {
		info.Services = append(info.Services, svc.Info)
	}
	return info
}

// Service returns the backend of a service.
func (s *Sandbox) Service(name string) provider.ServiceBackend {
	svc := s.Services[slices.IndexFunc(s.Services, func(svc *Service) bool { return svc.Info.Name == name })]
	if svc.Backend == nil {
		return svc
	}
	return svc.Backend
}

// StartServices starts the services in the order of their dependencies, and returns when all are ready. It then forwards
// the ports that they ask for.
func (s *Sandbox) StartServices(ctx context.Context, log *slog.Logger) error {
	within := time.Duration(0)
	if c := s.Spec.Compose; c != nil {
		within = c.ReadyTimeout
	}
	if err := startAll(ctx, s.Services, within, log); err != nil {
		return err
	}
	for _, svc := range s.Services {
		if len(svc.Service.Forward) == 0 {
			continue
		}
		addresses, err := svc.Units[0].Addresses(ctx) // also of services that have completed, since these count as ready
		for _, p := range svc.Service.Forward {
			if err == nil {
				_, err = svc.Forwards.Listen(ctx, p, addresses...)
			}
		}
		if err != nil {
			return svc.Failure("forward ports", err)
		}
	}
	return nil
}

// Disconnect closes the forwarded ports and the connections to guests. The guests of a sandbox that is not kept then kill
// their commands.
func (s *Sandbox) Disconnect() {
	for _, svc := range s.Services {
		svc.Forwards.Close()
		svc.Guests.Close()
	}
}

// Close removes the sandbox. It leaves a kept one that has started in place.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone:
		return nil
	case s.Kept():
		s.body.Leave()
	default:
		if err := s.body.Remove(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	s.release()
	return nil
}

// Forget makes Close leave everything in place, because it belongs to another sandbox.
func (s *Sandbox) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// Gone reports whether the sandbox was removed, left or forgotten.
func (s *Sandbox) Gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// release gives back what the sandbox holds of its provider. The caller holds s.mu.
func (s *Sandbox) release() {
	s.gone = true
	if s.place.Leave() && s.left != nil {
		s.left()
	}
}

// units returns the units of all services.
func (s *Sandbox) units() (all []Unit) {
	for _, svc := range s.Services {
		all = append(all, svc.Units...)
	}
	return all
}

// Stop kills everything that runs in a kept sandbox.
func (s *Sandbox) Stop(ctx context.Context) error {
	if !s.Kept() {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("not a kept sandbox"), Hint: "set Keep in its spec"}
	}
	ctx = context.WithoutCancel(ctx)
	units := s.units()
	return InParallel(len(units), func(i int) error { return units[i].Stop(ctx) })
}

// Freeze suspends all processes. thaw resumes them.
func (s *Sandbox) Freeze(ctx context.Context) (thaw func(context.Context) error, err error) {
	units := s.units()
	paused := make([]bool, len(units))
	thaw = func(ctx context.Context) error {
		return InParallel(len(units), func(i int) error {
			if !paused[i] {
				return nil
			}
			return units[i].Resume(ctx)
		})
	}
	err = InParallel(len(units), func(i int) (err error) {
		paused[i], err = units[i].Pause(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, thaw(context.WithoutCancel(ctx)))
	}
	return thaw, nil
}

// AtOnce is how many calls InParallel makes at once, or a provider should make. A daemon does little in parallel.
const AtOnce = 8

// InParallel calls f for 0 to n-1 concurrently and joins the errors.
func InParallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, AtOnce)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

var (
	_ provider.ServiceBackend = (*Service)(nil)
	_ provider.Forwarder      = (*Service)(nil)
	_ provider.Reattacher     = (*Service)(nil)
)

// Start runs a command through the guest of its user.
func (s *Service) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	provider.SetTerm(&cmd, s.Term)
	p, err := s.Guests.Start(ctx, cmd, live, out)
	if err != nil {
		return nil, s.Guests.Explain(ctx, err)
	}
	return p, nil
}

// Files returns access to files through the guest of a user.
func (s *Service) Files(user string) provider.FileBackend { return s.Guests.Files(user) }

// Forward listens on a port of the host and forwards to a port of the service.
func (s *Service) Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error) {
	if death := s.Units[0].Death(ctx); death.Err != nil {
		return fumehood.Port{}, death.Err
	}
	addresses, err := s.Units[0].Addresses(ctx)
	if err != nil {
		return fumehood.Port{}, err
	}
	return s.Forwards.Listen(ctx, p, addresses...)
}

// Dial connects to a port of the service.
func (s *Service) Dial(ctx context.Context, port int) (fumehood.Conn, error) {
	addresses, err := s.addresses(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := s.Forwards.Dial(ctx, uint16(port), addresses...) //nolint:gosec // it is validated
	if err != nil {
		return nil, s.Guests.Explain(ctx, err)
	}
	return conn, nil
}

// addresses are those that a unit had between two deaths.
type addresses struct {
	deaths int
	all    []netip.Addr
}

// addresses returns the addresses of the first unit. It asks for them once, since an Engine takes milliseconds, and again
// when the unit has died: if it was started again, it may have others.
func (s *Service) addresses(ctx context.Context) ([]netip.Addr, error) {
	deaths := s.Units[0].State().Deaths
	if known := s.known.Load(); known != nil && known.deaths == deaths {
		return known.all, nil
	}
	found, err := s.Units[0].Addresses(ctx)
	if err == nil {
		s.known.Store(&addresses{deaths, found})
	}
	return found, err
}

// Detached lists the service's detached commands.
func (s *Service) Detached(ctx context.Context) ([]provider.DetachedInfo, error) {
	return s.Guests.Detached(ctx)
}

// Join attaches to a detached command.
func (s *Service) Join(ctx context.Context, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	return s.Guests.Join(ctx, info, out)
}
