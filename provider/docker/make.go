package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner/sweep"
)

// startAttempts is the maximum number of attempts to start a sandbox when connections to the daemon break.
const startAttempts = 3

// Make creates and starts the sandbox, and logs what weakens its isolation.
func (sb *sandbox) Make(ctx context.Context) error {
	if err := sb.up(ctx); err != nil {
		return err
	}
	sb.p.logSeccomp()
	sb.p.logRuntime(sb.Spec)
	if sb.Spec.Compose == nil {
		sb.p.logLoosened(sb.Spec)
	} else {
		sb.logChanges(ctx)
	}
	return nil
}

// up creates and starts the sandbox. It retries with another container after a broken connection or a transient error
// of the daemon. That is safe because no command was handed over yet. It does not retry a Compose project, because the
// user's own programs may have started and must not run twice.
func (sb *sandbox) up(ctx context.Context) error {
	for n := 1; ; n++ {
		err := sb.bring(ctx)
		if err == nil {
			return nil
		}
		var lost box.Lost
		passing := engine.IsPassing(err) || errors.As(err, &lost)
		if n == startAttempts || !passing || sb.Gone() || sb.Spec.Compose != nil || ctx.Err() != nil {
			if n > 1 {
				err = &fumehood.Error{Class: fumehood.ClassOf(err), Err: fmt.Errorf("%w (after %d attempts)", err, n)}
			}
			return err
		}
		sb.p.opts.Logger.Warn("start of the sandbox failed: retrying", "sandbox", sb.Spec.Name, "attempt", n+1, "error", err)
		if derr := sb.discard(ctx); derr != nil {
			return &fumehood.Error{Class: fumehood.ClassOf(err), Err: fmt.Errorf("%w\nand then: %s", err, derr.Error())}
		}
	}
}

// bring creates and starts the sandbox. If the guest volume has disappeared (`docker volume prune` removes it) or has
// other content, bring makes another one, once.
func (sb *sandbox) bring(ctx context.Context) error {
	var done mended
	for {
		end := sb.Rec.Phase("guest")
		guest, err := sb.p.ensureGuest(ctx, sb.arch)
		end(err)
		if err != nil {
			return err
		}
		end = sb.Rec.Phase("create")
		if err = sb.create(ctx, guest.name); err == nil && !sb.direct() {
			err = sb.checkGuest(ctx, guest)
		}
		end(err)
		if err == nil {
			break
		}
		if err := sb.mend(ctx, guest, err, &done); err != nil {
			return err
		}
	}
	sb.recordNetwork()
	end := sb.Rec.Phase("start")
	err := sb.StartServices(ctx, sb.p.opts.Logger.With("sandbox", sb.Spec.Name))
	if err == nil {
		err = sb.verifyMounts(ctx)
	}
	end(err)
	return err
}

// mended records what was already tried so that a sandbox can be created.
type mended struct {
	guest   bool // looked for another guest volume
	runtime bool // looked up the daemon's runtimes
}

// mend fixes the reason why a sandbox could not be created, and removes what was created of it. It returns err if it
// cannot fix the reason.
func (sb *sandbox) mend(ctx context.Context, guest *guestVolumeOf, err error, done *mended) error {
	if sb.Gone() || ctx.Err() != nil {
		return err
	}
	switch {
	case errors.Is(err, errOtherGuest) && !done.runtime:
		done.runtime = true
	case done.guest:
		return err
	case errors.Is(err, errNotGuest):
		done.guest = true
		sb.p.forgetGuest(sb.arch, guest, true)
		sb.p.opts.Logger.Warn("guest volume not used: it does not contain the guest, or is still being filled", "volume", guest.name)
		// The volume is removed once nothing uses it, if its maker has ended. A living maker may still be filling it.
		defer sb.p.sweepUnasked(ctx, nil, func(o sweep.Object) bool { return o.Name == guest.name })
	default:
		if there, herr := sb.p.engine.HasVolume(ctx, guest.name); herr != nil || there {
			return err
		}
		done.guest = true
		sb.p.forgetGuest(sb.arch, guest, false)
	}
	return sb.discard(ctx)
}

// discard removes what was created of a sandbox that will be created again.
func (sb *sandbox) discard(ctx context.Context) error {
	sb.Disconnect()
	err := sb.remove(ctx)
	sb.services, sb.Services = nil, nil
	return err
}
