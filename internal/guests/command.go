package guests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/client"
	"github.com/fumehood/fumehood/provider"
)

// Command is a command that a guest runs, or the Host in its own way. Where it is lost, the reason may be what was done in
// the sandbox.
type Command struct {
	provider.ProcessBackend
	m     *Manager
	guest *guest // that runs it; nil where the Host does
	user  string // of the command, as it was given
	ooms  int    // how often the out-of-memory killer had struck before
	ends  int    // how often the service's own program had ended by itself before
	pids  int64  // how often the limit of processes had been met before
}

// Begin is a command that is about to be started by the Host in its own way.
func (m *Manager) Begin(ctx context.Context) Command {
	c := m.begin(ctx, nil)
	c.pids = m.pidsLimits(ctx)
	return c
}

// pidsLimits is how often the limit of processes was met; 0 where no guest can tell.
func (m *Manager) pidsLimits(ctx context.Context) int64 {
	main := m.Main()
	if main == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeathWait)
	defer cancel()
	swept, err := main.Sweep(ctx, nil, 0)
	if err != nil {
		return 0
	}
	return swept.PIDsLimits
}

func (m *Manager) begin(ctx context.Context, by *guest) Command {
	now := m.now(ctx)
	return Command{m: m, guest: by, ooms: now.OOMs, ends: now.Ends}
}

// Start runs cmd through the guest of its user.
func (m *Manager) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if cmd.Detach && m.cfg.Key != nil {
		return m.detach(ctx, cmd, out)
	}
	u, err := m.of(ctx, cmd.User)
	if err != nil {
		return nil, err
	}
	m.cfg.Ran.Store(true)
	c := m.begin(ctx, u)
	c.user = cmd.User
	p, err := u.Exec(ctx, cmd, live, out)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	c.ProcessBackend = p
	return c, nil
}

// Wait returns how the command ended.
func (c Command) Wait(ctx context.Context) (provider.Exit, error) {
	exit, err := c.ProcessBackend.Wait(ctx)
	if err == nil && c.guest == nil { // the Host itself knows of no usage
		exit.Usage.OOMKills = int64(max(c.m.now(ctx).OOMs-c.ooms, 0))
		exit.Usage.PIDsLimits = max(c.m.pidsLimits(ctx)-c.pids, 0)
	}
	if err != nil || exit.Outcome != fumehood.Lost || exit.CausedInside {
		return exit, err
	}
	if c.m.IsClosed() {
		return exit, nil // it is our doing
	}
	if inside, oom := c.ofGuest(ctx); oom || inside != "" {
		if c.guest.Lost() { // its workers have ended with it, and killed nothing
			exit.Leaked = c.left(ctx) || exit.Leaked
		}
		if oom {
			return outOfMemory(exit), nil
		}
		exit.CausedInside, exit.Reason = true, inside
		return exit, nil
	}
	now := c.m.cfg.Host.State(ctx, DeathWait, func(s State) bool { return s.Over || s.Ends > c.ends })
	switch death := c.m.cfg.Host.Death(ctx); {
	case errors.Is(death.Err, fumehood.ErrBroken) && death.OutOfMemory:
		return outOfMemory(exit), nil
	case errors.Is(death.Err, fumehood.ErrBroken):
		exit.CausedInside, exit.Reason = true, death.Err.Error()
	case now.Ends > c.ends && !c.m.cfg.Serves:
		exit.CausedInside, exit.Reason = true, "the service's own program has ended while it ran, and the Engine starts it again"
	}
	return exit, nil
}

// left has another guest kill what the commands of the command's guest have left, which was killed, and reports whether some of
// it may still run.
func (c Command) left(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeathWait)
	defer cancel()
	dead := c.guest.swept
	if main := c.m.Main(); main != nil {
		swept, err := main.Sweep(ctx, &dead.User, dead.Began)
		if err == nil && (swept.User == 0 || swept.User == dead.User) { // it may kill all of that
			return swept.Survivors > 0
		}
	}
	next, err := c.m.of(ctx, c.user) // it sweeps at its start
	return err != nil || next.swept.Survivors > 0
}

// frozenWithin bounds the wait of a kill for a service that is paused, for a checkpoint, say.
const frozenWithin = 4 * time.Second

// Kill ends the command, or gives it up in a service that stays paused: it ends when that goes on.
func (c Command) Kill(ctx context.Context) bool {
	if p, ok := c.ProcessBackend.(*client.Process); ok {
		defer time.AfterFunc(frozenWithin, func() {
			if c.m.now(ctx).Paused {
				p.GiveUp()
			}
		}).Stop()
	}
	return c.ProcessBackend.Kill(ctx)
}

// OOMWithin bounds the wait for word of the out-of-memory killer. Where it comes after that of the end, as it may where
// the machine is busy, the Engine tells it as an event and never as the container's state.
const OOMWithin = 500 * time.Millisecond

// ofGuest returns what was done in the sandbox to the guest that has lost the command, where an exec has started it and the
// service runs on; and whether the out-of-memory killer did that. It outlives the cancellation of ctx.
func (c Command) ofGuest(ctx context.Context) (inside string, oom bool) {
	if c.guest == nil || c.guest.exec == nil {
		return "", false
	}
	const killed, stopped = "the guest was killed in the sandbox", "the guest was stopped in the sandbox"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*DeathWait)
	defer cancel()
	code := -1
	if c.guest.Lost() { // else it has not obeyed
		var err error
		if code, err = c.guest.exec.Ended(ctx, DeathWait); err != nil {
			return "", false
		}
	}
	struck := func(s State) bool { return s.OOMs > c.ooms }
	switch {
	case code == 0, code == 1: // as it is when its connection ends
		return "", false
	case code == wire.WasStopped:
		return stopped, false
	case code > 0 && struck(c.m.cfg.Host.State(ctx, OOMWithin, struck)):
		return "", true
	case code > 0:
		return killed, false
	}
	if is, err := c.guest.exec.Stopped(ctx); err == nil && is {
		return stopped, false
	}
	return "", false
}

// explain adds to an error of the command's guest what was done to that in the sandbox.
func (c Command) explain(ctx context.Context, err error) error {
	err = c.m.explainLost(ctx, err)
	if !errors.Is(err, fumehood.ErrUnavailable) || errors.Is(err, fumehood.ErrBroken) || c.m.IsClosed() {
		return err
	}
	if c.m.cfg.Serves && !c.m.cfg.Ran.Load() {
		return err // nobody is there who could have done it
	}
	switch inside, oom := c.ofGuest(ctx); {
	case oom:
		return brokenBy(err, "the out-of-memory killer has ended the guest")
	case inside != "":
		return brokenBy(err, inside)
	}
	return err
}

// failed ends a guest whose start has failed, and adds to the error what it and the Host say.
func (c Command) failed(ctx context.Context, err error) error {
	c.guest.Close()
	return Saying(c.explain(ctx, err), c.guest.exec.Complaint())
}

// brokenBy makes an ErrBroken of an error whose reason was found in the sandbox.
func brokenBy(err error, why string) error {
	return &fumehood.Error{Class: fumehood.ErrBroken, Err: fmt.Errorf("%w: %s", err, why)}
}

// outOfMemory is how a lost command ended that the out-of-memory killer has ended, or what ran it.
func outOfMemory(exit provider.Exit) provider.Exit {
	exit.Outcome, exit.Reason = fumehood.OutOfMemory, ""
	return exit
}
