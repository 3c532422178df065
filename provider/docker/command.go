package docker

import (
	"context"
	"errors"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
)

// command is a command that a guest or the Engine runs. Where it is lost, the reason may be what was done in the sandbox.
type command struct {
	fumehood.ProcessBackend
	svc   *service
	guest *userGuest // that an exec has started; nil where it is another one, or the Engine runs the command
	ooms  int        // how often the out-of-memory killer had struck before
	ends  int        // how often the service's own program had ended by itself before
}

// over reports whether a container has died, or was removed.
func over(s engine.ContainerState) bool { return s.Died || !s.Started }

// begin is a command that is about to be started.
func (s *service) begin() command {
	seen := s.sb.p.watch.State(s.id)
	return command{svc: s, ooms: seen.OOMs, ends: seen.Alones}
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
	if inside, oom := c.ofGuest(context.WithoutCancel(ctx)); oom {
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

// ofGuest returns what was done in the sandbox to the command's guest, where an exec has started it and the container runs on;
// and whether the out-of-memory killer did that.
func (c command) ofGuest(ctx context.Context) (inside string, oom bool) {
	if c.guest == nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*deathWait)
	defer cancel()
	ends, stop := context.WithTimeout(ctx, deathWait)
	code, err := c.guest.exec.Ended(ends)
	stop()
	struck := func(st engine.ContainerState) bool { return st.OOMs > c.ooms }
	switch main := c.svc.guests.main; {
	case err != nil, code == 0, code == 1: // as it is when its connection ends
		return "", false
	case code > 0 && struck(c.svc.sb.p.watch.Await(ctx, c.svc.id, oomWithin, struck)):
		return "", true
	case code > 0:
		return "the guest of its user was killed in the sandbox while it ran", false
	case main == nil || !c.guest.guest.Moved(): // the daemon may have been slow
		return "", false
	default:
		if _, err := main.Sweep(ctx, nil, 0); err != nil {
			return "", false
		}
		return "the guest of its user does not answer, and the service's own does: it was stopped in the sandbox", false
	}
}

// outOfMemory is how a lost command ended that the out-of-memory killer has ended, or what ran it.
func outOfMemory(exit fumehood.Exit) fumehood.Exit {
	exit.Outcome, exit.Why = fumehood.OutOfMemory, ""
	return exit
}
