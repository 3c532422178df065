package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// command is a command that a guest or the Engine runs. Where it is lost, the reason may be what was done in the sandbox.
type command struct {
	fumehood.ProcessBackend
	svc   *service
	guest *userGuest // that runs it; nil where the Engine does
	ooms  int        // how often the out-of-memory killer had struck before
	ends  int        // how often the service's own program had ended by itself before
}

// over reports whether a container has died, or was removed.
func over(s engine.ContainerState) bool { return s.Died || !s.Started }

// begin is a command that is about to be started, by a guest or, where that is nil, the Engine.
func (s *service) begin(guest *userGuest) command {
	seen := s.sb.p.watch.State(s.id)
	return command{svc: s, guest: guest, ooms: seen.OOMs, ends: seen.Alones}
}

// Wait returns how the command ended.
func (c command) Wait(ctx context.Context) (fumehood.Exit, error) {
	exit, err := c.ProcessBackend.Wait(ctx)
	if err != nil || exit.Outcome != fumehood.Lost || exit.Inside {
		return exit, err
	}
	if c.svc.guests.isClosed() {
		return exit, nil // it is our doing
	}
	if inside, oom := c.ofGuest(ctx); oom {
		return outOfMemory(exit), nil
	} else if inside != "" {
		exit.Inside, exit.Why = true, inside
		return exit, nil
	}
	s := c.svc
	seen := s.sb.p.watch.Await(ctx, s.id, deathWait, func(st engine.ContainerState) bool { return over(st) || st.Alones > c.ends })
	switch death := s.death(ctx); {
	case errors.Is(death, fumehood.ErrBroken) && s.diedOfMemory():
		return outOfMemory(exit), nil
	case errors.Is(death, fumehood.ErrBroken):
		exit.Inside, exit.Why = true, death.Error()
	case seen.Alones > c.ends && !s.Serves:
		exit.Inside, exit.Why = true, "the service's own program has ended while it ran, and the Engine starts it again"
	}
	return exit, nil
}

// frozenWithin bounds the wait of a kill for a container that is paused, for a checkpoint, say.
const frozenWithin = 4 * time.Second

// Kill ends the command, or gives it up in a container that stays paused: it ends when that goes on.
func (c command) Kill(ctx context.Context) bool {
	if p, ok := c.ProcessBackend.(*client.Process); ok {
		defer time.AfterFunc(frozenWithin, func() {
			if c.svc.sb.p.watch.State(c.svc.id).Paused {
				p.GiveUp()
			}
		}).Stop()
	}
	return c.ProcessBackend.Kill(ctx)
}

// ofGuest returns what was done in the sandbox to the guest that has lost the command, where an exec has started it and the
// container runs on; and whether the out-of-memory killer did that. It outlives the cancellation of ctx.
func (c command) ofGuest(ctx context.Context) (inside string, oom bool) {
	if c.guest == nil || c.guest.exec == nil {
		return "", false
	}
	const killed, stopped = "the guest was killed in the sandbox", "the guest was stopped in the sandbox"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*deathWait)
	defer cancel()
	code := -1
	if c.guest.guest.Lost() { // else it has not obeyed
		var err error
		if code, err = c.guest.exec.Ended(ctx, deathWait); err != nil {
			return "", false
		}
	}
	struck := func(st engine.ContainerState) bool { return st.OOMs > c.ooms }
	switch {
	case code == 0, code == 1: // as it is when its connection ends
		return "", false
	case code == wire.WasStopped:
		return stopped, false
	case code > 0 && struck(c.svc.sb.p.watch.Await(ctx, c.svc.id, oomWithin, struck)):
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
func (c command) explain(ctx context.Context, err error) error {
	err = c.svc.guests.explain(ctx, err)
	if !errors.Is(err, fumehood.ErrUnavailable) || errors.Is(err, fumehood.ErrBroken) || c.svc.guests.isClosed() {
		return err
	}
	if c.svc.Serves && !c.svc.sb.ran.Load() {
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

// brokenBy makes an ErrBroken of an error whose reason was found in the sandbox.
func brokenBy(err error, why string) error {
	return &fumehood.Error{Class: fumehood.ErrBroken, Err: fmt.Errorf("%w: %s", err, why)}
}

// outOfMemory is how a lost command ended that the out-of-memory killer has ended, or what ran it.
func outOfMemory(exit fumehood.Exit) fumehood.Exit {
	exit.Outcome, exit.Why = fumehood.OutOfMemory, ""
	return exit
}
