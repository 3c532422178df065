package docker

import (
	"context"
	"log/slog"
	"time"

	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
)

// OtherGuest has the provider deliver a guest of another version: the same program, and other bytes behind it.
func (p *Provider) OtherGuest(version string) {
	p.volumes = map[string]string{}
	p.guestFor = func(ctx context.Context, arch string, log *slog.Logger) (guestbin.Binary, error) {
		guest, err := guestbin.For(ctx, arch, log)
		return guestbin.Binary{Program: append(guest.Program, version...), Version: version}, err
	}
}

// SetClock gives the provider another clock.
func (p *Provider) SetClock(now func() time.Time) { p.clock = now }

// NewAs connects as another owner.
func NewAs(ctx context.Context, opts Options, as owner.ID) (*Provider, error) {
	p, err := New(ctx, opts)
	if err != nil {
		return nil, err
	}
	p.watch.Close()
	p.self = as
	p.watch = p.engine.Watch(ctx, engine.LabelOwner+"="+as.String())
	return p, nil
}
