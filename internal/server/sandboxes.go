package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// held is a sandbox that clients use by its name.
type held struct {
	s       *Server
	l       *lease // unless it is kept
	id      string
	sandbox fumehood.Sandbox
	record  *record // its journal; nil for none
	keep    bool    // it outlives its lease
	processes
	// The rest has the lock of processes.
	expires time.Time
	uses    uses // of a sandbox with an idle time
	idled   bool // it is removed because nobody used it
	removed bool
}

func newHeld(s *Server, l *lease, sb fumehood.Sandbox) *held {
	return &held{s: s, l: l, id: sb.Info().Name, sandbox: sb, processes: newProcesses()}
}

func (h *held) describe() *api.Sandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &api.Sandbox{ID: h.id, Info: h.sandbox.Info(), Kept: h.keep, Expires: h.expires, Reason: h.s.providerReason()}
}

// close removes the sandbox. Closing a kept one leaves it in place, so that it is cleaned up as well.
func (h *held) close(ctx context.Context) error {
	err := h.sandbox.Close(ctx)
	if !h.keep || err != nil {
		return err
	}
	p, err := h.s.provider(ctx)
	if err != nil {
		return err
	}
	cleaner, ok := p.(provider.Cleaner)
	if !ok {
		return &fumehood.Error{Op: "remove sandbox " + h.id, Class: fumehood.ErrUnsupported}
	}
	_, err = cleaner.Cleanup(ctx, provider.CleanupOptions{Names: []string{h.id}})
	return err
}

// end removes the sandbox, and forgets it.
func (h *held) end(ctx context.Context) error {
	if err := h.close(ctx); err != nil {
		return err
	}
	h.unwatch()
	if h.keep {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		delete(h.s.kept, h.id)
		return nil
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if h.l.boxes[h.id] != nil { // else the lease's end counts it
		delete(h.l.boxes, h.id)
		h.s.sandboxes.Add(-1)
	}
	return nil
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

// tooMany returns the error for a number of sandboxes that is at its limit.
func tooMany(most int, kind string) error {
	const hint = "remove some, or start the server with a higher --max-sandboxes"
	return limitError("start sandbox", "max-sandboxes", hint, "there are %d %s", most, kind)
}

// create starts a sandbox for a lease. Its journal may be nil.
func (s *Server) create(ctx context.Context, l *lease, spec fumehood.Spec, r *record) (*held, error) {
	done, err := l.beginStart()
	if err != nil {
		return nil, err
	}
	defer done()
	if s.draining.Load() {
		s.metrics.refused.Add(1)
		return nil, errDraining()
	}
	if !enter(&s.sandboxes, s.opts.Limits.Sandboxes) {
		s.metrics.refused.Add(1)
		return nil, tooMany(s.opts.Limits.Sandboxes, "sandboxes")
	}
	s.starting.Add(1)
	defer s.starting.Add(-1)
	counted := false
	defer func() {
		if !counted {
			s.sandboxes.Add(-1)
		}
	}()
	p, err := s.provider(ctx)
	if err != nil {
		return nil, err
	}
	if opener, ok := p.(provider.Opener); ok && spec.Keep {
		kept, err := s.listKept(ctx, opener)
		if err != nil {
			return nil, err
		}
		if most := s.opts.Limits.Sandboxes; len(kept) >= most {
			s.metrics.refused.Add(1)
			return nil, tooMany(most, "kept sandboxes")
		}
	}
	sb, err := p.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	h := newHeld(s, l, sb)
	h.record = r
	if spec.Keep { // it may outlive this process
		h.keep, h.expires = true, time.Now().Add(spec.TTL)
		if opener, ok := p.(provider.Opener); ok {
			listed, _ := opener.Kept(ctx, h.id) // the sandbox has started, whatever becomes of the list
			for _, k := range listed {
				h.expires = k.Expires
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept[h.id] = h
		return h, nil
	}
	counted = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boxes[h.id] = h
	l.reuse(h.id)
	return h, nil
}

// find returns a sandbox of the lease, or a kept one.
func (s *Server) find(ctx context.Context, l *lease, id string) (*held, error) {
	h, unknown := lookup(&l.mu, l.boxes, "sandbox", id)
	if unknown != nil {
		h, _ = lookup(&s.mu, s.kept, "sandbox", id)
	}
	if h != nil {
		return h.useWithin(ctx)
	}
	if err := l.whyGone(id); err != nil {
		return nil, err
	}
	opener, err := s.opener(ctx)
	if err != nil {
		return nil, err
	}
	if opener == nil && !s.opts.Permit.Kept {
		return nil, &fumehood.Error{
			Op: "find sandbox " + id, Class: fumehood.ErrUnavailable, Hint: "start the server with --allow-kept",
			Err: noSandbox{refusal{errors.New("this client has started none of this name, and kept sandboxes are not allowed"), flagKept}},
		}
	}
	if opener == nil {
		return nil, unknown
	}
	sb, err := opener.Open(ctx, id)
	if errors.Is(err, fumehood.ErrConfig) {
		return nil, noKept(id)
	}
	if err != nil {
		return nil, err
	}
	h = newHeld(s, nil, sb)
	h.keep = true
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
		all = append(all, *h.describe())
	}
	l.mu.Unlock()
	var kept []provider.KeptSandbox
	opener, err := s.opener(ctx)
	if opener != nil {
		kept, err = s.listKept(ctx, opener)
	}
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		all = append(all, api.Sandbox{ID: k.Name, Info: k.Info, Kept: true, Expires: k.Expires, Created: k.Created, States: k.States})
	}
	slices.SortFunc(all, func(a, b api.Sandbox) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// At is the input of requests about a sandbox.
type At struct {
	Leased
	Sandbox string `path:"sandbox" maxLength:"100" doc:"the sandbox's id"`
}

// Named is the input of requests about a sandbox that name a service.
type Named struct {
	At
	Service string `query:"service" doc:"a service of the sandbox; empty means the default one"`
}

// In is the input of requests about a service.
type In struct {
	Named
	User string `query:"user" doc:"user of the service; empty means the service's own"`
}

func (a At) find(ctx context.Context, l *lease) (*held, error) { return l.s.find(ctx, l, a.Sandbox) }

func (i In) find(ctx context.Context, l *lease) (fumehood.Service, error) {
	h, err := i.At.find(ctx, l)
	if err != nil {
		return nil, err
	}
	return h.service(i.Service, i.User)
}

type createInput struct {
	Keyed
	Provider string  `query:"provider" doc:"must be the server's provider, or empty"`
	Journal  bool    `query:"journal" doc:"record the sandbox's activity, see get-journal"`
	Idle     float64 `query:"idle_ms" minimum:"0" doc:"milliseconds without a call and without a running command after which the server removes the sandbox; 0 means the server's --idle"`
	Body     fumehood.Spec
}

type imagesInput struct {
	Leased
	Provider string `query:"provider" doc:"must be the server's provider, or empty"`
	Body     fumehood.Spec
}

// checkPermit returns an error for a sandbox that the lease's client may not request.
func (s *Server) checkPermit(ctx context.Context, l *lease, provider string, spec *fumehood.Spec) error {
	if provider != "" {
		p, err := s.provider(ctx)
		if err != nil {
			return err
		}
		if p.Name() != provider {
			return bad("this server has the provider %s, not %q", p.Name(), provider)
		}
	}
	if spec.Binary != "" || spec.ConfigFile != "" && !filepath.IsAbs(spec.ConfigFile) {
		return bad("binary and relative paths of config_file are for programs on the server's machine")
	}
	return l.check(spec)
}

type sandboxes struct {
	Sandboxes []api.Sandbox `json:"sandboxes"`
}

func (s *Server) registerSandboxes() {
	const one = "/v1/sandboxes/{sandbox}"
	register(s, op{http.MethodPost, "/v1/sandboxes", "create-sandbox", "Start a sandbox, and return when commands can run in it", "Sandboxes"}, withLease(func(ctx context.Context, l *lease, in *createInput) (*output[*api.Sandbox], error) {
		if err := s.checkPermit(ctx, l, in.Provider, &in.Body); err != nil {
			return nil, err
		}
		idle, err := s.idleTime(api.Duration(in.Idle), in.Body.Keep)
		if err != nil {
			return nil, err
		}
		return startOnce(ctx, l, in.Key, in.RawBody, func(ctx context.Context) (*held, error) {
			spec, r := in.Body, (*record)(nil)
			if in.Journal {
				r, spec.Journal = s.newRecord()
			}
			h, err := s.create(ctx, l, spec, r)
			if err != nil {
				r.end()
				return nil, err
			}
			if r != nil {
				l.keepRecord(h.id, r)
			}
			h.removeIdle(idle)
			return h, nil
		})
	}))
	register(s, op{http.MethodGet, "/v1/sandboxes", "list-sandboxes", "List the lease's sandboxes, and the kept ones where the server allows them", "Sandboxes"}, withLease(func(ctx context.Context, l *lease, _ *Leased) (*output[sandboxes], error) {
		all, err := s.list(ctx, l)
		return &output[sandboxes]{sandboxes{all}}, err
	}))
	register(s, op{http.MethodGet, one, "get-sandbox", "Describe a sandbox", "Sandboxes"}, on(func(ctx context.Context, _ *lease, h *held, _ *At) (*output[*api.Sandbox], error) {
		err := h.refresh(ctx)
		return &output[*api.Sandbox]{h.describe()}, err
	}))
	register(s, op{http.MethodPost, one + "/renew", "renew-sandbox", "Set when a kept sandbox expires: ttl_ms from now, but never earlier than before", "Sandboxes"}, on(func(ctx context.Context, _ *lease, h *held, in *struct {
		At
		Body struct {
			TTL float64 `json:"ttl_ms" exclusiveMinimum:"0" doc:"milliseconds"`
		}
	},
	) (*output[*api.Sandbox], error) {
		err := h.renew(ctx, api.Duration(in.Body.TTL))
		return &output[*api.Sandbox]{h.describe()}, err
	}))
	register(s, op{http.MethodDelete, one, "delete-sandbox", "Remove a sandbox, also a kept one", "Sandboxes"}, ending[At]())
	register(s, op{http.MethodGet, one + "/connection", "get-connection", "Describe how a person connects to a service, and its ports", "Sandboxes"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, _ *In) (*output[fumehood.Connection], error) {
		c, err := svc.Connection(ctx)
		return &output[fumehood.Connection]{c}, err
	}))
	registerStream(s, op{http.MethodGet, one + "/logs", "get-logs", "Return what the main program of a kept sandbox's service has written", "Sandboxes"}, typeBytes, nil, on(readLogs))
}
