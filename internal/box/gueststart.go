package box

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
)

// startGuest starts a guest through the Unit. It first kills the processes that the commands of a dead guest left. The main
// process does so because otherwise the new guest may fail to start. The new guest does so too, because the main
// process may not have permission.
func (m *Guests) startGuest(ctx context.Context, r role, find bool, u, dead *guest) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.Within, Slow(m.cfg.Within))
	defer cancel()
	defer func() {
		if err != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %s", context.Cause(ctx), err.Error()) // err may include what the guest complained about
		}
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = m.cfg.Look(ctx, err)
		}
	}()
	if r.keeps || r.user == "" && (m.cfg.Key != nil || m.main != nil) {
		var met *guest
		if find {
			met, err = m.find(ctx, r.user)
		} else {
			met, err = m.meet(ctx, r.user, dead.lastReport())
		}
		if err == nil {
			u.Guest, u.exec, u.swept, u.relayed, u.near = met.Guest, met.exec, met.swept, met.relayed, met.near
		}
		return err
	}
	user := cmp.Or(r.user, m.cfg.User)
	if dead != nil && m.main != nil {
		main, err := m.Own(ctx)
		if err != nil {
			return err
		}
		swept, err := main.Sweep(ctx, &dead.swept.User, dead.swept)
		if err != nil {
			return m.explainLost(ctx, err)
		}
		m.logSurvivors(user, swept.Survivors)
	}
	l, err := m.launch(ctx, user, dead.lastReport())
	if err != nil {
		return err
	}
	if err := m.move(ctx, l.Guest); err != nil { // code in the sandbox may have interfered
		m.cfg.Log.Debug("a guest is reached through the daemon only", "user", user, "error", err)
	}
	u.Guest, u.exec, u.swept, u.near = l.Guest, l.exec, l.swept, l.Moved()
	return nil
}

// launch starts a guest of a user. The guest kills the processes left by a dead one; zero if there was none. If the guest is root without the service's capabilities, it is started once more, with them.
func (m *Guests) launch(ctx context.Context, user string, dead wire.Swept) (*guest, error) {
	u, err := m.launchBy(ctx, m.cfg.Unit.Exec, user, dead)
	if err != nil || !u.swept.Lacks {
		return u, err
	}
	u.Close()
	h, ok := m.cfg.Unit.(Empowerer)
	if !ok {
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("root would have no capabilities here")}
	}
	u, err = m.launchBy(ctx, h.ExecEmpowered, user, dead)
	switch {
	case err != nil:
		return nil, cmp.Or(h.Powerless(err), err)
	case u.swept.Lacks:
		u.Close()
		return nil, h.Powerless(nil)
	}
	return u, nil
}

// Lacks asks a guest of a user whether it is root without root's capabilities.
func (m *Guests) Lacks(ctx context.Context, user string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.Within, Slow(m.cfg.Within))
	defer cancel()
	u, err := m.launchBy(ctx, m.cfg.Unit.Exec, user, wire.Swept{})
	if err != nil {
		return false, err
	}
	u.Close()
	return u.swept.Lacks, nil
}

// launchBy starts a guest by exec, one of the Unit's ways to start it.
func (m *Guests) launchBy(ctx context.Context, exec func(ctx context.Context, user string) (Exec, error), user string, dead wire.Swept) (*guest, error) {
	c := m.begin(&guest{})
	before := m.counters(ctx)
	rw, err := exec(ctx, user)
	if err != nil {
		if used := m.processLimitError(ctx, before); used != nil {
			return nil, used
		}
		err = m.explainExit(err) // the error does not mention the guest, and is not about the command
		return nil, &fumehood.Error{Op: "start the guest", Class: fumehood.ClassOf(err), Err: err}
	}
	u := c.guest
	u.Guest, u.exec = host.New(rw), rw
	if err = u.Ready(ctx); err == nil {
		u.swept, err = u.Sweep(ctx, nil, dead)
	}
	if err == nil {
		err = m.cfg.Trusted(ctx)
	}
	if err != nil {
		err = m.explainExit(c.failStart(ctx, err))
		return nil, cmp.Or(m.processLimitError(ctx, before), err)
	}
	m.logSurvivors(user, u.swept.Survivors)
	return u, nil
}

// explainExit returns err as an ErrBroken if the service's own program has exited by itself since the service was ready.
func (m *Guests) explainExit(err error) error {
	if m.cfg.Serves || !m.HasEnded() || !errors.Is(err, fumehood.ErrUnavailable) && !errors.Is(err, fumehood.ErrInfrastructure) {
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrBroken, Err: err}
}

// logSurvivors logs that processes of a dead guest could not be killed.
func (m *Guests) logSurvivors(user string, n int) {
	if n > 0 {
		m.cfg.Log.Warn("a guest died, and processes of its commands cannot be killed", "user", user, "processes", n)
	}
}
