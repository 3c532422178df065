package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner/sweep"
)

// startAttempts is the maximum number of attempts to start a sandbox when connections to the daemon break.
const startAttempts = 3

// up creates and starts the sandbox. It retries with another container after a broken connection or a transient error
// of the daemon. That is safe because no command was handed over yet. It does not retry a Compose project, because the
// user's own programs may have started and must not run twice.
func (p *Provider) up(ctx context.Context, sb *sandbox, arch string) error {
	for n := 1; ; n++ {
		err := p.bring(ctx, sb, arch)
		if err == nil {
			sb.started = true
			return nil
		}
		var lost box.Lost
		passing := engine.IsPassing(err) || errors.As(err, &lost)
		if n == startAttempts || !passing || sb.gone || sb.spec.Compose != nil || ctx.Err() != nil {
			if n > 1 {
				err = &fumehood.Error{Class: fumehood.ClassOf(err), Err: fmt.Errorf("%w (after %d attempts)", err, n)}
			}
			return err
		}
		p.opts.Logger.Warn("start of the sandbox failed: retrying", "sandbox", sb.spec.Name, "attempt", n+1, "error", err)
		if derr := sb.discard(ctx); derr != nil {
			return &fumehood.Error{Class: fumehood.ClassOf(err), Err: fmt.Errorf("%w\nand then: %s", err, derr.Error())}
		}
	}
}

// bring creates and starts the sandbox. If the guest volume has disappeared (`docker volume prune` removes it) or has
// other content, bring makes another one, once.
func (p *Provider) bring(ctx context.Context, sb *sandbox, arch string) error {
	rec := sb.rec
	var project *compose.Project
	var done mended
	for {
		end := rec.Phase("guest")
		guest, err := p.ensureGuest(ctx, arch)
		end(err)
		if err != nil {
			return err
		}
		end = rec.Phase("create")
		if project, err = sb.create(ctx, guest.name); err == nil && !sb.direct() {
			err = sb.checkGuest(ctx, guest)
		}
		end(err)
		if err == nil {
			break
		}
		if err := p.mend(ctx, sb, arch, guest, err, &done); err != nil {
			return err
		}
	}
	sb.recordNetwork()
	end := rec.Phase("start")
	err := sb.start(ctx, project)
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
func (p *Provider) mend(ctx context.Context, sb *sandbox, arch string, guest *guestVolumeOf, err error, done *mended) error {
	if sb.gone || ctx.Err() != nil {
		return err
	}
	switch {
	case errors.Is(err, errOtherGuest) && !done.runtime:
		done.runtime = true
	case done.guest:
		return err
	case errors.Is(err, errNotGuest):
		done.guest = true
		p.forgetGuest(arch, guest, true)
		p.opts.Logger.Warn("guest volume not used: it does not contain the guest, or is still being filled", "volume", guest.name)
		// The volume is removed once nothing uses it, if its maker has ended. A living maker may still be filling it.
		defer p.sweepUnasked(ctx, nil, func(o sweep.Object) bool { return o.Name == guest.name })
	default:
		if there, herr := p.engine.HasVolume(ctx, guest.name); herr != nil || there {
			return err
		}
		done.guest = true
		p.forgetGuest(arch, guest, false)
	}
	return sb.discard(ctx)
}

// discard removes what was created of a sandbox that will be created again.
func (sb *sandbox) discard(ctx context.Context) error {
	for _, s := range sb.services {
		s.forwards.Close()
		s.guests.Close()
	}
	err := sb.remove(ctx)
	sb.services = nil
	return err
}
