package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// opener returns the provider, if it has kept sandboxes and clients may use them, or nil.
func (s *Server) opener(ctx context.Context) (provider.Opener, error) {
	if !s.opts.Permit.Kept {
		return nil, nil
	}
	p, err := s.provider(ctx)
	opener, _ := p.(provider.Opener)
	return opener, err
}

// noKept returns the error for a sandbox that the client has not started, and that is no kept one.
func noKept(id string) error {
	return &fumehood.Error{
		Op: "find sandbox " + id, Class: fumehood.ErrUnavailable,
		Err: noSandbox{errors.New("this client has started none of this name, and none is kept")},
	}
}

// refresh finds out when a kept sandbox expires, which others may change. If they have removed it, it is forgotten.
func (h *held) refresh(ctx context.Context) error {
	opener, err := h.s.opener(ctx)
	if opener == nil || !h.keep {
		return err
	}
	listed, err := opener.Kept(ctx, h.id)
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		h.drop(ctx)
		return noKept(h.id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if expires := listed[0].Expires; expires.After(h.expires) { // it may have been renewed meanwhile
		h.expires = expires
	}
	return nil
}

// drop removes a kept sandbox, which is there no more, from the server's memory.
func (h *held) drop(ctx context.Context) {
	h.s.mu.Lock()
	if h.s.kept[h.id] == h {
		delete(h.s.kept, h.id)
	}
	h.s.mu.Unlock()
	_ = h.sandbox.Close(ctx) // only this process's part of it, which is of no more use
}

// listKept lists the kept sandboxes, and forgets those that expired or that another process has removed.
func (s *Server) listKept(ctx context.Context, opener provider.Opener) ([]provider.KeptSandbox, error) {
	s.mu.Lock()
	known := maps.Clone(s.kept)
	s.mu.Unlock()
	kept, err := opener.Kept(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		delete(known, k.Name)
	}
	for _, h := range known {
		h.drop(ctx)
	}
	return kept, nil
}

// opener returns the provider, if the sandbox is a kept one.
func (h *held) opener(ctx context.Context, op, why string) (provider.Opener, error) {
	p, err := h.s.provider(ctx)
	if err != nil {
		return nil, err
	}
	if opener, ok := p.(provider.Opener); ok && h.keep {
		return opener, nil
	}
	return nil, &fumehood.Error{Op: op, Class: fumehood.ErrUnsupported, Err: errors.New(why)}
}

// renew sets when a kept sandbox expires.
func (h *held) renew(ctx context.Context, ttl time.Duration) error {
	opener, err := h.opener(ctx, "renew sandbox", "only kept sandboxes expire")
	if err != nil {
		return err
	}
	expires, err := opener.Renew(ctx, h.id, ttl)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && expires.After(h.expires) { // another request may have been faster
		h.expires = expires
	}
	return err
}

func readLogs(ctx context.Context, _ *lease, h *held, i *Named) (*huma.StreamResponse, error) {
	opener, err := h.opener(ctx, "read logs", "only kept sandboxes have logs")
	if err != nil {
		return nil, err
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
	return download(typeBytes, io.NopCloser(&logs), int64(logs.Len()), err)
}
