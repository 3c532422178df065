package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// held is a sandbox that clients use by its name.
type held struct {
	id      string
	sandbox fumehood.Sandbox
	keep    bool // it outlives its lease
	opened  bool // it was started by another process
	expires time.Time
	p       fumehood.Provider
	processes
}

func newHeld(p fumehood.Provider, sb fumehood.Sandbox) *held {
	return &held{id: sb.Info().Name, sandbox: sb, p: p, processes: newProcesses()}
}

func (h *held) describe() api.Sandbox {
	return api.Sandbox{ID: h.id, Info: h.sandbox.Info(), Kept: h.keep, Expires: h.expires}
}

// close removes the sandbox.
func (h *held) close(ctx context.Context) error {
	err := h.sandbox.Close(ctx)
	if !h.opened || err != nil {
		return err
	}
	cleaner, ok := h.p.(provider.Cleaner)
	if !ok {
		return &fumehood.Error{Op: "remove sandbox " + h.id, Class: fumehood.ErrUnsupported}
	}
	_, err = cleaner.Cleanup(ctx, provider.CleanupOptions{Names: []string{h.id}})
	return err
}

// service returns a service of the sandbox, by default the default one, for a user.
func (h *held) service(name, user string) (fumehood.Service, error) {
	svc := fumehood.Service(h.sandbox)
	if name != "" {
		var err error
		if svc, err = h.sandbox.Lookup(name); err != nil {
			return nil, err
		}
	}
	if user != "" {
		svc = svc.As(user)
	}
	return svc, nil
}

// count counts a sandbox that is about to start.
func (s *Server) count() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes >= s.opts.Limits.Sandboxes {
		return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrLimit, Err: fmt.Errorf("there are %d sandboxes", s.sandboxes), Hint: "remove some, or start the server with a higher --max-sandboxes"}
	}
	s.sandboxes++
	return nil
}

func (s *Server) uncount() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes--
}

// create starts a sandbox for a lease.
func (s *Server) create(ctx context.Context, l *lease, c *call, spec fumehood.Spec) (*api.Sandbox, error) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, stale("the lease has ended")
	}
	l.starting.Add(1)
	l.mu.Unlock()
	defer l.starting.Done()
	if err := s.count(); err != nil {
		return nil, err
	}
	h, err := s.start(ctx, spec)
	if err != nil {
		s.uncount()
		return nil, err
	}
	if h.keep {
		s.uncount() // it may outlive this process
		s.mu.Lock()
		s.kept[h.id] = h
		s.mu.Unlock()
	} else {
		l.mu.Lock()
		l.boxes[h.id] = h
		l.mu.Unlock()
	}
	c.undo = func(ctx context.Context) error { return s.remove(ctx, l, h) }
	info := h.describe()
	return &info, nil
}

func (s *Server) start(ctx context.Context, spec fumehood.Spec) (*held, error) {
	p, err := s.provider(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := p.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	h := newHeld(p, sb)
	if h.keep = spec.Keep; h.keep {
		h.expires = time.Now().Add(spec.TTL)
	}
	return h, nil
}

// remove removes a sandbox.
func (s *Server) remove(ctx context.Context, l *lease, h *held) error {
	if err := h.close(ctx); err != nil {
		return err
	}
	if h.keep {
		s.mu.Lock()
		delete(s.kept, h.id)
		s.mu.Unlock()
		return nil
	}
	l.mu.Lock()
	_, was := l.boxes[h.id]
	delete(l.boxes, h.id)
	l.mu.Unlock()
	if was {
		s.uncount()
	}
	return nil
}

// find returns a sandbox of the lease, or a kept one.
func (s *Server) find(ctx context.Context, l *lease, id string) (*held, error) {
	l.mu.Lock()
	h := l.boxes[id]
	l.mu.Unlock()
	if h != nil {
		return h, nil
	}
	unknown := &fumehood.Error{Op: "find sandbox " + id, Class: fumehood.ErrUnavailable, Err: errors.New("the lease has no sandbox with this name")}
	if !s.opts.Permit.Kept {
		return nil, unknown
	}
	s.mu.Lock()
	h = s.kept[id]
	s.mu.Unlock()
	if h != nil {
		return h, nil
	}
	p, err := s.provider(ctx)
	if err != nil {
		return nil, err
	}
	opener, ok := p.(provider.Opener)
	if !ok {
		return nil, unknown
	}
	sb, err := opener.Open(ctx, id)
	if errors.Is(err, fumehood.ErrConfig) {
		unknown.Err = errors.New("neither the lease nor this user has a sandbox with this name")
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	h = newHeld(p, sb)
	h.keep, h.opened = true, true
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.kept[id]; first != nil { // another request was faster
		return first, nil
	}
	s.kept[id] = h
	return h, nil
}

// list returns the sandboxes of the lease and the kept ones, by name.
func (s *Server) list(ctx context.Context, l *lease) ([]api.Sandbox, error) {
	all := []api.Sandbox{}
	l.mu.Lock()
	for _, h := range l.boxes {
		all = append(all, h.describe())
	}
	l.mu.Unlock()
	if s.opts.Permit.Kept {
		p, err := s.provider(ctx)
		if err != nil {
			return nil, err
		}
		if opener, ok := p.(provider.Opener); ok {
			kept, err := opener.Kept(ctx)
			if err != nil {
				return nil, err
			}
			for _, k := range kept {
				all = append(all, api.Sandbox{ID: k.Name, Info: k.Info, Kept: true, Expires: k.Expires})
			}
		}
	}
	slices.SortFunc(all, func(a, b api.Sandbox) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// At is the input of requests about a sandbox.
type At struct {
	Leased
	Sandbox string `path:"sandbox" maxLength:"100" doc:"the sandbox's id"`
}

// In is the input of requests about a service.
type In struct {
	At
	Service string `query:"service" doc:"a service of the sandbox; empty means the default one"`
	User    string `query:"user" doc:"user of the service; empty means the service's own"`
}

// box returns the lease and the sandbox of a request, held until release is called.
func (s *Server) box(ctx context.Context, a At) (l *lease, h *held, release func(), err error) {
	l, release, err = s.enter(a.Leased)
	if err != nil {
		return nil, nil, nil, err
	}
	if h, err = s.find(ctx, l, a.Sandbox); err != nil {
		release()
		return nil, nil, nil, err
	}
	return l, h, release, nil
}

// with calls f with the service of a request.
func with[T any](ctx context.Context, s *Server, i In, f func(fumehood.Service) (*T, error)) (*T, error) {
	_, h, release, err := s.box(ctx, i.At)
	if err != nil {
		return nil, err
	}
	defer release()
	svc, err := h.service(i.Service, i.User)
	if err != nil {
		return nil, err
	}
	return f(svc)
}

type createInput struct {
	Keyed
	Provider string `query:"provider" doc:"must be the server's provider, or empty"`
	Body     fumehood.Spec
	RawBody  []byte
}

// permitted returns an error for a request that clients may not make.
func (s *Server) permitted(in *createInput) error {
	if in.Provider != "" && in.Provider != s.opts.Provider {
		return bad("this server has the provider %s, not %q", s.opts.Provider, in.Provider)
	}
	return s.opts.Permit.check(&in.Body, s.opts.Limits)
}

type sandboxes struct {
	Sandboxes []api.Sandbox `json:"sandboxes"`
}

func (s *Server) registerSandboxes() {
	register(s, op{http.MethodPost, "/v1/sandboxes", "create-sandbox", "Start a sandbox, and return when commands can run in it", "Sandboxes"}, func(ctx context.Context, in *createInput) (*output[*api.Sandbox], error) {
		l, release, err := s.enter(in.Leased)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := s.permitted(in); err != nil {
			return nil, err
		}
		size := func(*api.Sandbox) int64 { return 4 << 10 }
		box, err := once(ctx, l, in.Key, in.RawBody, size, func(ctx context.Context, c *call) (*api.Sandbox, error) { return s.create(ctx, l, c, in.Body) })
		return &output[*api.Sandbox]{box}, err
	})
	register(s, op{http.MethodGet, "/v1/sandboxes", "list-sandboxes", "List the lease's sandboxes, and the kept ones where the server allows them", "Sandboxes"}, func(ctx context.Context, in *Leased) (*output[sandboxes], error) {
		l, release, err := s.enter(*in)
		if err != nil {
			return nil, err
		}
		defer release()
		all, err := s.list(ctx, l)
		return &output[sandboxes]{sandboxes{all}}, err
	})
	register(s, op{http.MethodGet, "/v1/sandboxes/{sandbox}", "get-sandbox", "Describe a sandbox", "Sandboxes"}, func(ctx context.Context, in *At) (*output[api.Sandbox], error) {
		_, h, release, err := s.box(ctx, *in)
		if err != nil {
			return nil, err
		}
		defer release()
		return &output[api.Sandbox]{h.describe()}, nil
	})
	register(s, op{http.MethodDelete, "/v1/sandboxes/{sandbox}", "delete-sandbox", "Remove a sandbox, also a kept one", "Sandboxes"}, func(ctx context.Context, in *At) (*struct{}, error) {
		l, h, release, err := s.box(ctx, *in)
		if err != nil {
			return nil, err
		}
		defer release()
		return nil, s.remove(ctx, l, h)
	})
	register(s, op{http.MethodGet, "/v1/sandboxes/{sandbox}/connection", "get-connection", "Describe how a person connects to a service, and its ports", "Sandboxes"}, func(ctx context.Context, i *In) (*output[fumehood.Connection], error) {
		return with(ctx, s, *i, func(svc fumehood.Service) (*output[fumehood.Connection], error) {
			c, err := svc.Connection(ctx)
			return &output[fumehood.Connection]{c}, err
		})
	})
	s.registerLogs()
}

func (s *Server) registerLogs() {
	registerStream(s, op{http.MethodGet, "/v1/sandboxes/{sandbox}/logs", "get-logs", "Return what the main program of a kept sandbox's service has written", "Sandboxes"}, typeBytes, nil, func(ctx context.Context, i *In) (*huma.StreamResponse, error) {
		_, h, release, err := s.box(ctx, i.At)
		if err != nil {
			return nil, err
		}
		defer release()
		opener, ok := h.p.(provider.Opener)
		if !ok || !h.keep {
			return nil, &fumehood.Error{Op: "read logs", Class: fumehood.ErrUnsupported, Err: errors.New("only kept sandboxes have logs")}
		}
		var logs bytes.Buffer
		const most = 64 << 20
		err = opener.Logs(ctx, h.id, i.Service, provider.LogOptions{}, func(_ fumehood.Stream, p []byte) {
			if logs.Len() < most {
				logs.Write(p)
			}
		})
		if err == nil && logs.Len() >= most {
			err = &fumehood.Error{Op: "read logs", Class: fumehood.ErrTooLarge, Err: fmt.Errorf("they have more than %d bytes", most)}
		}
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			c.SetHeader("Content-Type", typeBytes)
			_, _ = c.BodyWriter().Write(logs.Bytes()) // the client may be gone
		}}, nil
	})
}
