package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
	"github.com/fumehood/fumehood/internal/sweep"
)

// startAttempts is how often a sandbox is made at most, where connections to the daemon break meanwhile.
const startAttempts = 3

// up brings the sandbox up. What fails for a broken connection, or an error of the daemon's that may pass, is done again
// with another container: no command was handed over yet. Of a Compose project the user's own programs may have begun,
// which must not run twice.
func (p *Provider) up(ctx context.Context, sb *sandbox, arch string) error {
	for n := 1; ; n++ {
		err := p.bring(ctx, sb, arch)
		if err == nil {
			sb.started = true
			return nil
		}
		var lost guests.Lost
		passing := engine.IsPassing(err) || errors.As(err, &lost)
		if n == startAttempts || !passing || sb.gone || sb.spec.Compose != nil || ctx.Err() != nil {
			if n > 1 {
				err = &fumehood.Error{Class: fumehood.ClassOf(err), Err: fmt.Errorf("%w (the sandbox was made %d times)", err, n)}
			}
			return err
		}
		p.opts.Logger.Warn("the sandbox is made again", "sandbox", sb.spec.Name, "attempt", n+1, "error", err)
		if derr := sb.discard(ctx); derr != nil {
			return &fumehood.Error{Class: fumehood.ClassOf(err), Err: fmt.Errorf("%w\nand then: %s", err, derr.Error())}
		}
	}
}

// bring creates and starts the sandbox. Where the guest's volume has vanished since it was last seen (`docker volume
// prune` does that), or holds something else, another one is made, once.
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

// mended is what was done already so that a sandbox can be created.
type mended struct {
	guest   bool // another guest's volume was looked for
	runtime bool // the daemon's runtimes were looked up
}

// mend does away with the reason why a sandbox could not be created, and with what there is of it. It returns err where it
// cannot.
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
		p.opts.Logger.Warn("a guest's volume is not used: it does not hold the guest, or is being filled", "volume", guest.name)
		// Once nothing uses it, it goes where its maker has ended: one that lives may be filling it.
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

// discard removes what there is of a sandbox that is to be made again.
func (sb *sandbox) discard(ctx context.Context) error {
	for _, s := range sb.services {
		s.forwards.close()
		s.guests.Close()
	}
	err := sb.remove(ctx)
	sb.services = nil
	return err
}
