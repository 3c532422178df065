package workers

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/provider"
)

// closeTime bounds the removal of a sandbox.
const closeTime = 2 * time.Minute

// sandbox is a sandbox on a worker.
type sandbox struct {
	w        *worker
	l        *lease
	path     string
	info     fumehood.Info
	keep     bool
	place    *box.Place
	services map[string]*service

	// closed ends when a kept sandbox is closed here, and with it what waits for its commands.
	closed context.Context //nolint:containedctx // the sandbox's own
	close  context.CancelFunc

	mu      sync.Mutex
	running map[*process]bool // commands of a kept sandbox that are not detached
}

var (
	_ provider.Backend = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
	_ provider.Checker = (*sandbox)(nil)
)

func (p *Provider) newSandbox(w *worker, l *lease, made *api.Sandbox, place *box.Place) *sandbox {
	sb := &sandbox{
		w: w, l: l, path: "/v1/sandboxes/" + url.PathEscape(made.ID), info: made.Info, keep: made.Kept, place: place,
		services: map[string]*service{}, running: map[*process]bool{},
	}
	sb.info.Provider = p.Name()
	sb.closed, sb.close = context.WithCancel(l.life)
	for _, info := range sb.info.Services {
		s := &service{sb: sb, name: info.Name, ids: map[int]string{}}
		s.ports = box.NewDialedPorts(s.Dial, p.log)
		sb.services[info.Name] = s
	}
	return sb
}

func (sb *sandbox) Info() fumehood.Info { return sb.info }

func (sb *sandbox) Service(name string) provider.ServiceBackend {
	s, ok := sb.services[name]
	if !ok {
		return nil // not a nil *service in the interface
	}
	return s
}

// request returns a request about the sandbox.
func (sb *sandbox) request(method, path string) *request {
	return &request{method: method, path: sb.path + path, query: url.Values{}, lease: sb.l}
}

// post sends a request that nothing repeats.
func (sb *sandbox) post(ctx context.Context, path string, body any) error {
	r := sb.request(http.MethodPost, path)
	r.json = body
	return sb.w.call(ctx, r, nil)
}

// Close removes the sandbox, or leaves a kept one with its detached commands.
func (sb *sandbox) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	for _, s := range sb.services {
		s.ports.Close()
	}
	if sb.keep {
		sb.leave(ctx)
		sb.close()
	} else if err := sb.removeThere(ctx); err != nil {
		return err
	}
	sb.place.Leave()
	return nil
}

// discard removes a sandbox whose start fails, also a kept one.
func (sb *sandbox) discard(ctx context.Context) error {
	sb.keep = false
	return sb.Close(ctx)
}

// removeThere removes the sandbox. One that is lost is removed by its worker.
func (sb *sandbox) removeThere(ctx context.Context) error {
	err := sb.w.call(ctx, sb.request(http.MethodDelete, ""), nil)
	if isGone(err) || sb.isLost(ctx, err) {
		return nil
	}
	return err
}

// isLost reports whether an error is that of a worker that is lost. It waits until that is known.
func (sb *sandbox) isLost(ctx context.Context, err error) bool {
	if _, ok := asLost(err); !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	select {
	case <-sb.l.life.Done():
	case <-ctx.Done():
	}
	return sb.l.life.Err() != nil
}

// leave kills the commands that were started here and are not detached, and waits for their ends.
func (sb *sandbox) leave(ctx context.Context) {
	sb.mu.Lock()
	var all sync.WaitGroup
	for p := range sb.running {
		all.Go(func() {
			p.Kill(ctx)
			select {
			case <-p.ended:
			case <-ctx.Done():
			}
		})
	}
	sb.mu.Unlock()
	all.Wait()
}

// Stop kills everything that runs in a kept sandbox.
func (sb *sandbox) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	err := sb.post(ctx, "/stop", struct{}{})
	if sb.keep && codeOf(err) == fumehood.CodeUnavailable { // it has ended already
		return nil
	}
	return err
}

// Check returns an ErrUnavailable that names what has ended.
func (sb *sandbox) Check(ctx context.Context) error { return sb.post(ctx, "/check", struct{}{}) }

// service is a service of a sandbox.
type service struct {
	sb    *sandbox
	name  string
	ports *box.Ports

	mu  sync.Mutex     // also held while Connection forwards ports
	ids map[int]string // of detached commands in paths, by their numbers
}

var (
	_ provider.ServiceBackend = (*service)(nil)
	_ provider.Connector      = (*service)(nil)
	_ provider.Forwarder      = (*service)(nil)
	_ provider.AllKiller      = (*service)(nil)
	_ provider.Reattacher     = (*service)(nil)
)

// request returns a request about the service.
func (s *service) request(method, path, user string) *request {
	r := s.sb.request(method, path)
	r.query.Set("service", s.name)
	if user != "" {
		r.query.Set("user", user)
	}
	return r
}

func (s *service) Files(user string) provider.FileBackend { return &files{s, user} }

func (s *service) KillAll(ctx context.Context) error {
	r := s.request(http.MethodPost, "/kill-all", "")
	r.json = struct{}{}
	return s.sb.w.call(ctx, r, nil)
}

// Connection lists the ports that this process forwards. Those that a project publishes on its worker are forwarded from free
// ports of this machine. Only a kept sandbox has a command for a shell.
func (s *service) Connection(ctx context.Context, user string) (c fumehood.Connection, err error) {
	if err := s.sb.w.call(ctx, s.request(http.MethodGet, "/connection", user), &c); err != nil {
		return fumehood.Connection{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range c.Ports {
		if p.Protocol == fumehood.ProtocolUDP || slices.ContainsFunc(s.ports.All(), func(own fumehood.Port) bool { return own.Container == p.Container }) {
			continue
		}
		if _, err := s.ports.Listen(ctx, fumehood.Port{Container: p.Container}); err != nil {
			return fumehood.Connection{}, err
		}
	}
	c = fumehood.Connection{Container: c.Container, Shell: []string{}, VSCode: []string{}, Ports: append([]fumehood.Port{}, s.ports.All()...)}
	if !s.sb.keep {
		return c, nil
	}
	c.Shell = append([]string{"fumehood", "shell", s.sb.info.Name}, s.sb.w.flags...)
	if s.name != s.sb.info.Services[0].Name {
		c.Shell = append(c.Shell, "--service", s.name)
	}
	if user != "" {
		c.Shell = append(c.Shell, "--user", user)
	}
	return c, nil
}

func (s *service) Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error) {
	return s.ports.Listen(ctx, p)
}
