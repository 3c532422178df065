package docker

import (
	"cmp"
	"context"
	"errors"
	"path"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider"
)

// service is the backend of one service of a project. It runs commands and transfers files through a guest or through
// the Engine's API.
type service struct {
	sb *sandbox
	*box.Service
	project    *compose.Project // set when it is started
	info       fumehood.ServiceInfo
	containers []engine.State // as created, in the order of Service.Containers
	id         string         // of the first container; commands run in it

	guests *box.Guests
	deaths deaths

	forwards *box.Ports

	owning    sync.Mutex // held while a user is looked up
	owners    map[string]engine.FileOwner
	powerless map[string]bool // by user: whether root lacks its capabilities; see mayAsRoot
}

var (
	_ provider.ServiceBackend = (*service)(nil)
	_ provider.Connector      = (*service)(nil)
	_ provider.EngineFiler    = (*service)(nil)
	_ provider.Forwarder      = (*service)(nil)
	_ provider.Reattacher     = (*service)(nil)
)

// newService returns the backend of a service with the containers that were created for it.
func newService(sb *sandbox, s compose.Service, containers []engine.State) *service {
	first := containers[0]
	svc := &service{sb: sb, containers: containers, id: first.ID}
	svc.Service = box.NewService(s, starter{svc})
	svc.info = fumehood.ServiceInfo{Name: s.Name, Container: first.Name, Image: s.Image, User: first.User, Dir: path.Clean("/" + first.WorkingDir), Runtime: first.Runtime}
	svc.guests = newGuests(svc)
	if sb != nil { // nil if the service is only described
		svc.forwards = box.NewPorts(svc.guests.Own, sb.p.opts.Logger.With("sandbox", sb.spec.Name, "service", s.Name))
	}
	return svc
}

// Start starts cmd through a guest or through the Engine.
func (s *service) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	provider.SetTerm(&cmd, s.containers[0].Term)
	if s.sb.direct() || cmd.ViaEngine {
		if cmd.Detach && s.sb.key != nil {
			return nil, &fumehood.Error{
				Class: fumehood.ErrUnsupported, Err: errors.New("detached commands need the guest, which an exec of the Engine bypasses"),
				Hint: "run it through the guest, or not detached",
			}
		}
		if err := s.mayAsRoot(ctx, cmd.User); err != nil {
			return nil, s.explain(ctx, err)
		}
		s.sb.ran.Store(true)
		c := s.guests.Begin(ctx)
		e, err := s.sb.p.engine.Exec(ctx, s.sb.p.watch, s.id, cmd, out)
		if err != nil {
			c.Abandon()
			if err = s.explain(ctx, err); errors.Is(err, fumehood.ErrUnavailable) && s.alive(ctx) == nil {
				err = cmp.Or(s.trapped(ctx), err)
			}
			return nil, err
		}
		c.ProcessBackend = e
		return c, nil
	}
	p, err := s.guests.Start(ctx, cmd, live, out)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return p, nil
}

// fileOwner returns the owner of files that the engine transport creates for a user. An empty user is the service's
// user.
func (s *service) fileOwner(ctx context.Context, user string) (engine.FileOwner, error) {
	if user == "" {
		user = s.info.User
	}
	s.owning.Lock()
	defer s.owning.Unlock()
	if owner, ok := s.owners[user]; ok {
		return owner, nil
	}
	owner, err := s.sb.p.engine.FileOwner(ctx, s.id, user)
	if err != nil {
		return engine.FileOwner{}, err
	}
	if s.owners == nil {
		s.owners = map[string]engine.FileOwner{}
	}
	s.owners[user] = owner
	return owner, nil
}

// Files returns access to files as a user, through a guest or through the Engine.
func (s *service) Files(user string) provider.FileBackend {
	if !s.sb.direct() {
		return s.guests.Files(user)
	}
	return s.EngineFiles(user)
}

// EngineFiles returns access to files through the Engine.
func (s *service) EngineFiles(user string) provider.FileBackend {
	return s.sb.p.engine.Files(s.id, func(ctx context.Context) (engine.FileOwner, error) {
		return s.fileOwner(ctx, user)
	})
}

// Detached lists the service's detached commands.
func (s *service) Detached(ctx context.Context) ([]provider.DetachedInfo, error) {
	return s.guests.Detached(ctx)
}

// Join attaches to a detached command.
func (s *service) Join(ctx context.Context, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	return s.guests.Join(ctx, info, out)
}
