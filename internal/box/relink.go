package box

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// The first connection, through the daemon, may be cut, for example by a proxy in front of it or by its restart. The main process
// then kills the commands that were running for this process, and waits for it to connect again by a relay. A cut
// command is lost. It is never run again, because it may have run. A connection by a relay is continued; see relays.

const (
	// lingerFor is how long a main process without a host waits for one. It is longer than holdFor, so that this process
	// gives up first. A process that is gone does not come back, so the container ends even if nobody removes it.
	lingerFor = 5 * time.Minute
	// holdFor bounds the attempts to connect again without a command that waits for it.
	holdFor = 2 * time.Minute
	// commandWithin bounds the same for a command.
	commandWithin = 20 * time.Second
	// firstPause is the pause after the first failed attempt. It doubles with each one, up to longestPause.
	firstPause   = time.Second / 10
	longestPause = 5 * time.Second
)

// CutReason is why a command was lost with its connection.
const CutReason = "the connection to the daemon was cut"

// linger makes the main process outlive its connection for some time if this process can connect to it again.
func (m *Guests) linger(ctx context.Context) error {
	if _, ok := m.cfg.Unit.(Relayer); !ok {
		return nil
	}
	m.key = make([]byte, wire.SecretSize)
	_, _ = crand.Read(m.key) // it never fails
	name, secret := m.residence("")
	if err := m.main.Reside(ctx, name, secret, lingerFor); err != nil {
		return m.explainLost(ctx, err)
	}
	m.holding.Go(func() { m.hold(context.WithoutCancel(ctx)) })
	return nil
}

// hold stays connected to the main process until Close. It gives up if connecting fails for too long, or for good.
func (m *Guests) hold(ctx context.Context) {
	for g := m.main; ; {
		select {
		case <-g.Done():
		case <-m.closing:
			return
		}
		u, err := m.relink(ctx, holdFor, true)
		if err != nil {
			if !m.IsClosed() {
				m.cfg.Log.Warn("connection to the sandbox lost", "error", err)
			}
			return
		}
		g = u.Guest
	}
}

// relink connects to the main process again; see insist.
func (m *Guests) relink(ctx context.Context, within time.Duration, patient bool) (*guest, error) {
	var u *guest
	err := m.insist(ctx, within, patient, func(trying context.Context) (final bool, err error) {
		u, err = m.at(trying, role{}, false)
		return false, err
	})
	return u, err
}

// insist calls try until it succeeds, fails for good, or within has passed. If patient, it also waits for processes that may end
// when the sandbox's limit on them is reached.
func (m *Guests) insist(ctx context.Context, within time.Duration, patient bool, try func(context.Context) (final bool, err error)) error {
	trying, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	last := Slow(within)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		final, err := try(trying)
		if err == nil || final {
			return err
		}
		if trying.Err() == nil {
			last = err
			if err := m.lasting(ctx, err); err != nil && (!patient || !errors.Is(err, fumehood.ErrLimit)) {
				return err
			}
		}
		select {
		case <-time.After(pause - rand.N(pause/2)): // after the restart of a daemon, not all at once
		case <-m.closing:
			return errGuestsClosed
		case <-trying.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &fumehood.Error{
				Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("%s, and connecting again has failed for %v: %w", CutReason, within, last),
				Hint: "try again once the daemon answers",
			}
		}
	}
}

const (
	// runtimeAborts is the exit code of a Go program that got no thread.
	runtimeAborts = 2
	// relayNeeds is how many processes and threads a relay and its start by the Engine take for a moment.
	relayNeeds = 14
)

// explainCrowded returns the error of the sandbox's limit on processes if that is why a relay did not start, otherwise err.
func (m *Guests) explainCrowded(ctx context.Context, err error) error {
	c, ok := m.cfg.Unit.(Counter)
	if !ok || errors.Is(err, fumehood.ErrUnavailable) && ctx.Err() != nil {
		return err
	}
	n, limit, cerr := c.Processes(ctx)
	if cerr != nil || limit == 0 || n+relayNeeds <= limit {
		return err
	}
	return &fumehood.Error{
		Class: fumehood.ErrLimit, Hint: provider.ProcessLimitHint,
		Err: &provider.ProcessLimit{Text: fmt.Sprintf("the sandbox's limit of %d processes and threads is reached: it has %d, and a connection needs some", limit, n)},
	}
}

// lasting returns why connecting again cannot succeed after err; nil if it may.
func (m *Guests) lasting(ctx context.Context, err error) error {
	passing := errors.Is(err, fumehood.ErrInfrastructure) || errors.Is(err, fumehood.ErrUnavailable)
	if !passing || errors.Is(err, fumehood.ErrBroken) || errors.Is(err, errGuestsClosed) {
		return err
	}
	if errors.Is(err, fumehood.ErrUnavailable) { // the daemon answers, perhaps
		if death := m.cfg.Unit.Death(ctx); death.Err != nil {
			return death.Err
		}
	}
	if errors.Is(err, errNobody) {
		return err
	}
	return nil
}

// reaches is how often reach asks for a guest whose connection turns out to be cut.
const reaches = 3

// reach calls do with the guest of a user. If the guest has not received the request because its connection was cut
// before, reach calls do again with the next guest. reached reports whether the error is from do.
func (m *Guests) reach(ctx context.Context, user string, do func(u *guest) error) (reached bool, err error) {
	for n := 1; ; n++ {
		u, err := m.of(ctx, user)
		if err != nil {
			return false, err
		}
		if err = do(u); n == reaches || !errors.Is(err, host.ErrUnsent) || !m.isCut(u) {
			return true, err
		}
	}
}

// isCut reports whether the guest is lost because its connection through the daemon was cut, or because it ended itself.
func (m *Guests) isCut(u *guest) bool {
	_, ok := m.cfg.Unit.(Relayer)
	return ok && u != nil && !u.near && u.Cut()
}

// survives reports whether the guest, whose connection was cut, still runs: this process is connected to it again.
func (m *Guests) survives(ctx context.Context, u *guest) bool {
	if m.main == nil || m.key == nil || u.exec != nil && !u.relayed {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeathWait)
	defer cancel()
	_, err := m.Own(ctx)
	return err == nil
}

// ofCut names the cut in an error that it has caused.
func (c Command) ofCut(err error) error {
	if !errors.Is(err, fumehood.ErrUnavailable) || errors.Is(err, fumehood.ErrBroken) || !c.m.isCut(c.guest) {
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("%s: %w", CutReason, err)}
}
