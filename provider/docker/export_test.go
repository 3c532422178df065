package docker

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
)

// OtherGuest makes the provider deliver a guest of another version: the same program with bytes appended. Of old
// guests, it removes only those of that version.
func (p *Provider) OtherGuest(version string) {
	p.among = guestsWith(version)
	p.volumes = map[string]*guestVolumeOf{}
	p.guestFor = func(ctx context.Context, arch string, log *slog.Logger) (guestbin.Binary, error) {
		guest, err := guestbin.For(ctx, arch, log)
		if err != nil {
			return guest, err
		}
		return appended(guest, version, version)
	}
}

// appended returns a guest with bytes appended to its program, and another version.
func appended(guest guestbin.Binary, suffix, version string) (guestbin.Binary, error) {
	program, err := guest.Program()
	guest = guestbin.Of(slices.Concat(program, []byte(suffix)))
	guest.Version = version
	return guest, err
}

// MuteGuest makes the provider deliver a program that does not answer in place of the guest, and wait for it for at
// most within.
func (p *Provider) MuteGuest(program []byte, version string, within time.Duration) {
	p.OtherGuest(version)
	p.guestFor = func(context.Context, string, *slog.Logger) (guestbin.Binary, error) {
		guest := guestbin.Of(program)
		guest.Version = version
		return guest, nil
	}
	p.guestWithin = within
}

// guestsWith matches the guests whose version has a prefix.
func guestsWith(prefix string) func(sweep.Object) bool {
	return func(o sweep.Object) bool {
		return o.Kind == "volume" && o.Cache && strings.HasPrefix(o.Name, volumePrefix+prefix)
	}
}

// SetClock replaces the provider's clock.
func (p *Provider) SetClock(now func() time.Time) { p.clock = now }

// Sped returns options with all timeouts and pauses divided by a number.
func (o Options) Sped(by int) Options {
	o.speedup = engine.Speedup(by)
	return o
}

// Only restricts Cleanup to matching sandboxes and owners. Otherwise it would remove what other tests need.
func (p *Provider) Only(match func(sandbox, owner string) bool) {
	p.among = func(o sweep.Object) bool { return match(o.Sandbox, o.Owner) }
}

// OnlySandboxes restricts Cleanup to sandboxes with these names.
func (p *Provider) OnlySandboxes(names ...string) {
	p.Only(func(sandbox, _ string) bool { return slices.Contains(names, sandbox) })
}

// OnlyNamed restricts Cleanup to objects and folders whose names have a prefix.
func (p *Provider) OnlyNamed(prefix string) {
	p.among = func(o sweep.Object) bool { return strings.HasPrefix(filepath.Base(o.Name), prefix) }
}

// NewAs connects as another owner.
func NewAs(ctx context.Context, opts Options, as owner.ID) (*Provider, error) {
	p, err := New(ctx, opts)
	if err != nil {
		return nil, err
	}
	p.watch.Close()
	p.self = as
	p.watch = p.engine.Watch(ctx, owner.LabelOwner+"="+as.String())
	return p, nil
}
