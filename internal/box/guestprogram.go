package box

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// Launch starts the service's own program: in a kept sandbox as a detached command of its resident guest, which continues the
// output of the program before it. That must have ended.
func (m *Guests) Launch(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (provider.ProcessBackend, error) {
	if m.cfg.Key == nil {
		return m.run(ctx, cmd, func(u *guest) (*host.Process, error) { return u.Launch(ctx, cmd, out) })
	}
	m.cfg.Ran.Store(true)
	return m.callKeeper(ctx, func(g *host.Guest) (*host.Detached, error) { return g.Detach(ctx, cmd, wire.ProgramID, out) })
}

// Restart makes the guest start the program of Launch again as r says. Afterwards Launch fails.
func (m *Guests) Restart(ctx context.Context, r wire.Restart) error {
	_, err := m.callKeeper(ctx, func(g *host.Guest) (*host.Detached, error) { return nil, g.Restart(ctx, r) })
	return err
}

// Program watches the program of Launch; see host.Guest.Program.
func (m *Guests) Program(ctx context.Context, follow bool, out provider.Sink) (provider.DetachedBackend, error) {
	return m.callKeeper(ctx, func(g *host.Guest) (*host.Detached, error) { return g.Program(ctx, follow, out) })
}

// callKeeper calls do with the guest that keeps detached commands.
func (m *Guests) callKeeper(ctx context.Context, do func(g *host.Guest) (*host.Detached, error)) (provider.DetachedBackend, error) {
	g, err := m.keeper(ctx)
	if err != nil {
		return nil, err
	}
	p, err := do(g)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	return p, nil
}
