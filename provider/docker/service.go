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
	*box.Service
	sb         *sandbox
	containers []engine.State // as created, in the order of Service.Containers
	id         string         // of the first container; commands run in it

	deaths deaths

	owning    sync.Mutex // held while a user is looked up
	owners    map[string]engine.FileOwner
	powerless map[string]bool // by user: whether root lacks its capabilities; see mayAsRoot
}

var (
	_ provider.Connector   = (*service)(nil)
	_ provider.EngineFiler = (*service)(nil)
)

// newService returns the backend of a service with the containers that were created for it.
func newService(sb *sandbox, c compose.Service, containers []engine.State) *service {
	s := &service{sb: sb, containers: containers, id: containers[0].ID}
	s.Service = &box.Service{Service: c, Info: describeService(c.Name, c.Image, containers[0]), Direct: sb.direct(), Term: containers[0].Term, Backend: s, Launch: s.launch}
	for n := range containers {
		s.Units = append(s.Units, unit{s, n})
	}
	s.Guests = newGuests(s)
	s.Forwards = box.NewPorts(s.Guests.Own, sb.p.opts.Logger.With("sandbox", sb.Spec.Name, "service", c.Name))
	return s
}

// describeService describes a service by its first container.
func describeService(name, image string, first engine.State) fumehood.ServiceInfo {
	return fumehood.ServiceInfo{Name: name, Container: first.Name, Image: image, User: first.User, Dir: path.Clean("/" + first.WorkingDir), Runtime: first.Runtime}
}

// Start starts cmd through a guest or through the Engine.
func (s *service) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	if s.sb.direct() || cmd.ViaEngine {
		provider.SetTerm(&cmd, s.Term)
		if cmd.Detach && s.sb.Key != nil {
			return nil, &fumehood.Error{
				Class: fumehood.ErrUnsupported, Err: errors.New("detached commands need the guest, which an exec of the Engine bypasses"),
				Hint: "run it through the guest, or not detached",
			}
		}
		if err := s.mayAsRoot(ctx, cmd.User); err != nil {
			return nil, s.explain(ctx, err)
		}
		s.sb.Ran.Store(true)
		c := s.Guests.Begin(ctx)
		e, err := s.sb.p.engine.Exec(ctx, s.sb.p.watch, s.id, cmd, out)
		if err != nil {
			c.Abandon()
			if err = s.explain(ctx, err); errors.Is(err, fumehood.ErrUnavailable) && s.alive(ctx) == nil {
				err = cmp.Or(s.recheckUsers(ctx), err)
			}
			return nil, err
		}
		c.ProcessBackend = e
		return c, nil
	}
	return s.Service.Start(ctx, cmd, live, out)
}

// fileOwner returns the owner of files that the engine transport creates for a user. An empty user is the service's
// user.
func (s *service) fileOwner(ctx context.Context, user string) (engine.FileOwner, error) {
	if user == "" {
		user = s.Info.User
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
		return s.Guests.Files(user)
	}
	return s.EngineFiles(user)
}

// EngineFiles returns access to files through the Engine.
func (s *service) EngineFiles(user string) provider.FileBackend {
	return s.sb.p.engine.Files(s.id, func(ctx context.Context) (engine.FileOwner, error) {
		return s.fileOwner(ctx, user)
	})
}
