package memory

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

// Provider runs sandboxes in an Engine. Each one is like another process that uses it.
type Provider struct {
	engine *Engine
	self   owner.ID
	life   box.Life
}

var (
	_ fumehood.Provider = (*Provider)(nil)
	_ provider.Opener   = (*Provider)(nil)
	_ provider.Cleaner  = (*Provider)(nil)
)

// New returns a provider.
func New(e *Engine) (*Provider, error) {
	self, err := owner.Self()
	if err != nil {
		return nil, err
	}
	p := &Provider{engine: e, self: self}
	p.life.Driver, p.life.Log = driver{p}, slog.New(slog.DiscardHandler) // no reaper: it could not see this process's memory
	return p, nil
}

// Name returns "memory".
func (p *Provider) Name() string { return "memory" }

// Start starts a sandbox with one service, "default". Mounts, a user and Compose projects are an ErrUnsupported, and
// nothing isolates it or limits it.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	return p.life.Start(ctx, spec)
}

// Open connects to a kept sandbox.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	return p.life.OpenKept(ctx, name)
}

// Kept lists the kept sandboxes.
func (p *Provider) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	return p.life.Kept(ctx, names...)
}

// Logs is an ErrUnsupported, since no service has a program of its own.
func (p *Provider) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	return p.life.Logs(ctx, name, service, opts, out)
}

// Renew postpones the expiry of a kept sandbox.
func (p *Provider) Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error) {
	return p.life.Renew(ctx, name, ttl)
}

// Cleanup removes the sandboxes of dead owners, expired ones, and those named in the options.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	return sweep.Removal{}.Run(ctx, opts, sweep.Local(func() (objects []sweep.Object, err error) {
		for _, c := range p.engine.list("") {
			objects = append(objects, sweep.Object{
				Kind: "container", Name: c.name, Sandbox: c.name, Owner: c.marks[owner.LabelOwner], Kept: c.marks[owner.LabelKept] == "true",
				Created: c.created, Expires: c.marks.Expires(), Remove: func(context.Context) error { return p.engine.remove(c.container) },
			})
		}
		return objects, nil
	}))
}

// Close closes the sandboxes that are still open. Afterwards none can be started.
func (p *Provider) Close(ctx context.Context) error {
	err := p.life.Open.Close(context.WithoutCancel(ctx))
	p.life.Leave(err == nil)
	return err
}

// driver makes the sandboxes of a provider.
type driver struct{ *Provider }

var _ box.Driver = driver{}

// Plan checks a spec.
func (p driver) Plan(_ context.Context, spec fumehood.Spec) (box.Body, error) {
	if len(spec.Mounts) > 0 || len(spec.Tmpfs) > 0 || spec.User != "" || spec.Compose != nil {
		return nil, &fumehood.Error{
			Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the memory provider has no mounts, users or Compose projects"),
		}
	}
	sb := &sandbox{Sandbox: box.Sandbox{Spec: spec}, p: p.Provider}
	if spec.Keep {
		sb.Key = box.NewKey()
	}
	return sb, nil
}

// Find finds kept sandboxes by their marks.
func (p driver) Find(_ context.Context, name string, _ bool) (all []box.Found, _ error) {
	for _, c := range p.engine.list(name) {
		if c.marks[owner.LabelKept] == "true" {
			all = append(all, p.describe(c))
		}
	}
	return all, nil
}

// describe describes a kept sandbox.
func (p driver) describe(c listed) box.Found {
	state, about := "running", c.marks.Info(p.Name())
	if !(unit{c.container}).State().Lives {
		state = "ended"
	}
	f := box.Found{Programs: []bool{false}}
	f.KeptSandbox = provider.KeptSandbox{Info: about, Created: c.created, Expires: c.marks.Expires(), States: map[string]string{c.info.Name: state}}
	f.Services = []fumehood.ServiceInfo{c.info}
	f.Open = func(ctx context.Context) (box.Body, error) {
		if err := (unit{c.container}).Death(ctx).Err; err != nil {
			return nil, err
		}
		sb := &sandbox{Sandbox: box.Sandbox{Spec: fumehood.Spec{Name: c.name, Keep: true}, About: about, Key: c.marks.Key()}, p: p.Provider}
		sb.connect(c.container)
		return sb, nil
	}
	f.Extend = func(_ context.Context, until time.Time) error {
		p.engine.mark(c.container, owner.LabelExpires, until.UTC().Format(time.RFC3339))
		return nil
	}
	return f
}
