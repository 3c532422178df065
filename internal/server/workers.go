package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// registerWorkers adds the operations that a program needs which uses several servers as one provider.
func (s *Server) registerWorkers() {
	const one = "/v1/sandboxes/{sandbox}"
	register(s, op{http.MethodGet, "/v1/status", "get-status", "Describe how much the server has to do", "Server"}, s.status)
	register(s, op{http.MethodPost, "/v1/cleanup", "clean-up", "Remove what ended processes left, or kept sandboxes by their names", "Sandboxes"}, withLease(s.cleanUp))
	register(s, op{http.MethodPost, one + "/check", "check-sandbox", "Check that an unused sandbox is still in the state in which it was started", "Sandboxes"}, on(func(ctx context.Context, _ *lease, h *held, _ *emptyAt) (*struct{}, error) {
		return nil, h.sandbox.Check(ctx)
	}))
	register(s, op{http.MethodPost, one + "/stop", "stop-sandbox", "Kill everything that runs in a kept sandbox, and leave its files", "Sandboxes"}, on(func(ctx context.Context, _ *lease, h *held, _ *emptyAt) (*struct{}, error) {
		err := h.sandbox.Stop(ctx)
		if err == nil && h.keep {
			h.drop(ctx) // the next call finds out how it has ended
		}
		return nil, err
	}))
	registerStream(s, op{http.MethodGet, one + "/logs/events", "follow-logs", "Follow what the main program of a kept sandbox's service writes. Each line is an event, and the last one the end, without a result", "Sandboxes"}, typeLines, api.Event{}, on(followLogs))
	register(s, op{http.MethodPost, one + "/symlink", "make-link", "Create a symbolic link", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *struct {
		In
		Body struct {
			Path   api.Text `json:"path"`
			Target api.Text `json:"target"`
		}
	},
	) (*struct{}, error) {
		return nil, svc.Symlink(ctx, string(i.Body.Target), string(i.Body.Path))
	}))
	register(s, op{http.MethodPost, one + "/chown", "change-owner", "Set the owner of a file. A link is not followed", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *struct {
		In
		Body struct {
			Path      api.Text `json:"path"`
			Owner     string   `json:"owner"`
			Recursive bool     `json:"recursive,omitempty" doc:"the files below a directory too"`
		}
	},
	) (*struct{}, error) {
		if i.Body.Recursive {
			return nil, svc.ChownAll(ctx, string(i.Body.Path), i.Body.Owner)
		}
		return nil, svc.Chown(ctx, string(i.Body.Path), i.Body.Owner)
	}))
}

type emptyAt struct {
	At
	Body struct{}
}

// status describes how much the server has to do. The first call opens the provider.
func (s *Server) status(ctx context.Context, in *struct {
	Image string `query:"image" doc:"an image, for has_image"`
},
) (*output[api.Status], error) {
	p, err := s.provider(ctx)
	if err != nil {
		return nil, err
	}
	starting := s.starting.Load()
	st := api.Status{
		Version: api.Version{Version: s.opts.Version, API: api.Number, Instance: s.instance}, Provider: p.Name(), Draining: s.draining.Load(),
		Sandboxes: int(max(s.sandboxes.Load()-starting, 0)), Starting: int(starting), MaxSandboxes: s.opts.Limits.Sandboxes,
	}
	if m, ok := p.(provider.Measurer); ok {
		machine, err := m.Machine(ctx)
		if err != nil {
			return nil, err
		}
		st.CPUs, st.Memory, st.MemoryAvailable = machine.CPUs, machine.Memory, machine.MemoryAvailable
	}
	if in.Image != "" && s.opts.Permit.checkImage(in.Image) == nil {
		if st.HasImage, err = hasImage(ctx, p, in.Image); err != nil {
			s.opts.Logger.Debug("an image is not looked up", "error", err)
		}
	}
	return &output[api.Status]{st}, nil
}

// hasImage reports whether a provider has an image, as far as it can tell.
func hasImage(ctx context.Context, p fumehood.Provider, image string) (has bool, err error) {
	switch p := p.(type) {
	case provider.ImageFinder:
		return p.HasImage(ctx, image)
	case provider.ImageBuilder:
		_, has, err = p.FindImage(ctx, image)
	}
	return has, err
}

// Drain makes the server refuse new sandboxes, and waits until it has no sandbox, session or evaluation, for a time at most.
// Kept sandboxes stay. It returns earlier when ctx ends.
func (s *Server) Drain(ctx context.Context, most time.Duration) {
	s.draining.Store(true)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for s.sandboxes.Load() > 0 || s.owned.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(drainPause):
		}
	}
}

const (
	// drainPause is how often a draining server looks whether it has sandboxes.
	drainPause = 100 * time.Millisecond
	// drainRetry is when a client may try again, in seconds: another server may have the address then.
	drainRetry = "10"
)

// errDraining returns the answer to a start while the server drains.
func errDraining() error {
	why := newAnswer(http.StatusServiceUnavailable, fumehood.CodeUnavailable, "start sandbox", "the server is about to end, and starts no sandboxes")
	why.Body.Hint = "use another server, or try again later"
	return huma.ErrorWithHeaders(why, http.Header{"Retry-After": {drainRetry}})
}

type cleanups struct {
	Leftovers []api.Leftover `json:"leftovers"`
}

// cleanUp removes what ended processes left, or kept sandboxes. It leaves out sandboxes of other clients: their names are
// secrets.
func (s *Server) cleanUp(ctx context.Context, l *lease, in *struct {
	Leased
	Body api.Cleanup
},
) (*output[cleanups], error) {
	const operation = "clean up"
	if !s.opts.Permit.Kept {
		return nil, unauthorizedError(flagKept, "start the server with --allow-kept", "a cleanup is not allowed")
	}
	p, err := s.provider(ctx)
	if err != nil {
		return nil, err
	}
	cleaner, ok := p.(provider.Cleaner)
	if !ok {
		return nil, &fumehood.Error{Op: operation, Class: fumehood.ErrUnsupported, Err: errors.New("the provider " + p.Name() + " leaves nothing")}
	}
	found, err := cleaner.Cleanup(ctx, provider.CleanupOptions{Names: in.Body.Names, DryRun: in.Body.DryRun})
	all := []api.Leftover{}
	for _, f := range found {
		l.mu.Lock()
		own := l.boxes[f.Sandbox] != nil
		l.mu.Unlock()
		if f.Sandbox == "" || own || f.Kept || f.Remove {
			all = append(all, leftoverOf(f))
		}
		if h, _ := lookup(&s.mu, s.kept, "sandbox", f.Sandbox); h != nil && f.Removed {
			h.drop(ctx)
		}
	}
	if len(all) > 0 && err != nil { // each has its own error
		err = nil
	}
	return &output[cleanups]{cleanups{all}}, err
}

func leftoverOf(l provider.Leftover) api.Leftover {
	j := api.Leftover{
		Kind: l.Kind, Name: l.Name, Sandbox: l.Sandbox, Owner: l.Owner, Kept: l.Kept, Cache: l.Cache, Foreign: l.Foreign,
		Remove: l.Remove, Reason: l.Reason, Removed: l.Removed,
	}
	if l.Err != nil {
		j.Error = new(errorOf(l.Err))
	}
	return j
}

type followLogsInput struct {
	Named
	Tail   int  `query:"tail" minimum:"0" doc:"number of last lines; 0 means all"`
	Follow bool `query:"follow" doc:"go on until the main program ends"`
}

func followLogs(ctx context.Context, l *lease, h *held, i *followLogsInput) (*huma.StreamResponse, error) {
	opener, err := h.opener(ctx, "read logs", "only kept sandboxes have logs")
	if err != nil {
		return nil, err
	}
	return follow(ctx, l.life, api.Event{Type: api.EventHeartbeat}, func(ctx context.Context, send func(any)) {
		offsets := [3]int64{}
		err := opener.Logs(ctx, h.id, i.Service, provider.LogOptions{Tail: i.Tail, Follow: i.Follow}, func(s fumehood.Stream, p []byte) {
			send(api.Event{Type: api.EventOutput, Stream: s.String(), Offset: offsets[s], Data: bytes.Clone(p)})
			offsets[s] += int64(len(p))
		})
		if err != nil {
			send(api.Event{Type: api.EventError, Error: new(errorOf(err))})
			return
		}
		send(api.Event{Type: api.EventEnd})
	}), nil
}
