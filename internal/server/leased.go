package server

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// leasedProvider starts the sandboxes of a session or an evaluation: those that a client may have, counted and listed as
// the lease's others.
type leasedProvider struct {
	fumehood.Provider
	s *Server
	l *lease
	// own returns the workspace of the session, which may be mounted. It is nil for evaluations.
	own func() string
}

// images are the optional interfaces of a provider that has images.
type images interface {
	provider.Preparer
	provider.ImageBuilder
	provider.Measurer
	provider.Cleaner
}

// providerFor returns the server's provider for a session or an evaluation.
func (s *Server) providerFor(ctx context.Context, l *lease, own func() string) (fumehood.Provider, error) {
	p, err := s.provider(ctx)
	if err != nil {
		return nil, err
	}
	leased := &leasedProvider{p, s, l, own}
	if full, ok := p.(images); ok {
		return &leasedImages{leased, full}, nil
	}
	return leased, nil
}

// Start starts a sandbox.
func (p *leasedProvider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if p.own != nil && spec.Name == "" { // it reads or removes files of the session, which no limit may prevent
		return p.Provider.Start(ctx, spec)
	}
	if err := p.check(&spec); err != nil {
		return nil, err
	}
	h, err := p.s.create(ctx, p.l, spec, nil)
	if err != nil {
		return nil, err
	}
	return &leasedSandbox{h.sandbox, h.end}, nil
}

func (p *leasedProvider) check(spec *fumehood.Spec) error {
	var own []string
	if p.own != nil {
		own = []string{p.own()}
	}
	if spec.Limits.Memory == fumehood.DefaultMemory { // environments and tasks have set the default already
		spec.Limits.Memory = 0
	}
	return p.l.check(spec, own...)
}

// Close does nothing: the provider is the server's.
func (p *leasedProvider) Close(context.Context) error { return nil }

// leasedSandbox is a sandbox that its lease forgets when it is closed.
type leasedSandbox struct {
	fumehood.Sandbox
	remove func(context.Context) error
}

// Close removes the sandbox.
func (b *leasedSandbox) Close(ctx context.Context) error { return b.remove(ctx) }

// leasedImages is a leasedProvider that has images.
type leasedImages struct {
	*leasedProvider
	images
}

// Prepare prepares the images of a sandbox.
func (p *leasedImages) Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	if err := p.check(&spec); err != nil {
		return nil, err
	}
	return p.l.prepare(ctx, p.images, spec, opts)
}

// BuildImage builds an image.
func (p *leasedImages) BuildImage(ctx context.Context, b provider.ImageBuild) (string, error) {
	if err := p.s.opts.Permit.checkBuild(); err != nil {
		return "", err
	}
	return p.images.BuildImage(ctx, b)
}

// PullImage pulls an image.
func (p *leasedImages) PullImage(ctx context.Context, ref string) (provider.Image, error) {
	if err := p.s.opts.Permit.checkImage(ref); err != nil {
		return provider.Image{}, err
	}
	return p.images.PullImage(ctx, ref)
}
