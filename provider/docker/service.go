package docker

import (
	"cmp"
	"context"
	"errors"
	"path"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
	"github.com/fumehood/fumehood/provider"
)

// service is the backend of one service of a project. It runs commands and moves files through a guest, or
// by the Engine's own calls.
type service struct {
	sb *sandbox
	compose.Service
	info       fumehood.ServiceInfo
	containers []engine.State // as they were created, in the order of Service.Containers
	id         string         // of the first container, in which commands run

	guests *guests.Manager
	deaths deaths

	stages // of its start

	forwards forwards

	owning    sync.Mutex // held while something about a user is being found out
	owners    map[string]engine.FileOwner
	powerless map[string]bool // by user: root without its capabilities; see mayAsRoot
}

var (
	_ provider.ServiceBackend = (*service)(nil)
	_ provider.Connector      = (*service)(nil)
	_ provider.EngineFiler    = (*service)(nil)
	_ provider.Forwarder      = (*service)(nil)
	_ provider.Reattacher     = (*service)(nil)
)

// newService takes over the containers that were created for a service.
func newService(sb *sandbox, s compose.Service, containers []engine.State) *service {
	first := containers[0]
	svc := &service{sb: sb, Service: s, containers: containers, id: first.ID, stages: newStages()}
	svc.info = fumehood.ServiceInfo{Name: s.Name, Container: first.Name, Image: s.Image, User: first.User, Dir: path.Clean("/" + first.WorkingDir), Runtime: first.Runtime}
	svc.guests = newGuests(svc)
	return svc
}

// Start hands cmd to a guest, or to the Engine.
func (s *service) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	if s.sb.direct() || cmd.ViaEngine {
		if cmd.Detach && s.sb.key != nil {
			return nil, &fumehood.Error{
				Class: fumehood.ErrUnsupported, Err: errors.New("only a guest keeps a detached command when this process has ended, and the Engine's exec goes past it"),
				Hint: "run it by the guest, or not detached",
			}
		}
		if err := s.mayAsRoot(ctx, cmd.User); err != nil {
			return nil, s.explain(ctx, err)
		}
		s.sb.ran.Store(true)
		c := s.guests.Begin(ctx)
		e, err := s.sb.p.engine.Exec(ctx, s.sb.p.watch, s.id, cmd, out)
		if err != nil {
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

// fileOwner is who the engine transport gives the new files of a user to; empty is the service's user.
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

// Files returns the files that the guest of a user reads and changes, or that the Engine does.
func (s *service) Files(user string) provider.FileBackend {
	if !s.sb.direct() {
		return s.guests.Files(user)
	}
	return s.EngineFiles(user)
}

// EngineFiles returns the files that the Engine reads and writes.
func (s *service) EngineFiles(user string) provider.FileBackend {
	return s.sb.p.engine.Files(s.id, func(ctx context.Context) (engine.FileOwner, error) {
		return s.fileOwner(ctx, user)
	})
}

// Detached lists the service's detached commands.
func (s *service) Detached(ctx context.Context) ([]provider.DetachedInfo, error) {
	return s.guests.Detached(ctx)
}

// Join looks at a detached command.
func (s *service) Join(ctx context.Context, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	return s.guests.Join(ctx, info, out)
}
