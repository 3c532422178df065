package docker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// Detached commands of other users than the service's own are kept by resident guests of theirs. Their numbers are those of the
// own user's guest, which is also who knows that they are there.

// residentOf connects to the resident guest of another user. Where there is none it is started, unless it is only to be
// found: then the error is an errNobody.
func (g *guests) residentOf(ctx context.Context, user string, find bool) (*client.Guest, error) {
	g.residing.Lock()
	defer g.residing.Unlock()
	g.mu.Lock()
	known := g.residents[user]
	g.mu.Unlock()
	if known != nil && !known.guest.Lost() {
		return known.guest, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	met := &userGuest{}
	var err error
	if find {
		met.guest, met.swept, err = g.relayed(ctx, user)
	} else {
		met.guest, met.swept, err = g.meet(ctx, user, known.began())
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		met.guest.Close()
		return nil, errClosed
	}
	if g.residents == nil {
		g.residents = map[string]*userGuest{}
	}
	g.residents[user] = met
	return met.guest, nil
}

// detachedAs is a detached command of another user.
type detachedAs struct {
	*client.Detached
	own *client.Guest // of the service's own user, which has its number
}

// Forget drops the command, which must have ended, and then its number.
func (d *detachedAs) Forget(ctx context.Context) error {
	if err := d.Detached.Forget(ctx); err != nil {
		return err
	}
	return d.own.Forget(ctx, d.ID())
}

// detachAs starts a command of another user that outlives this process.
func (g *guests) detachAs(ctx context.Context, cmd fumehood.Cmd, out fumehood.Sink) (fumehood.ProcessBackend, error) {
	own, err := g.keeper(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := g.residentOf(ctx, cmd.User, false)
	if err != nil {
		return nil, err
	}
	there, err := theirs.Detached(ctx)
	if err != nil {
		return nil, g.explain(ctx, err)
	}
	above := 0
	if len(there) > 0 {
		above = there[len(there)-1].ID
	}
	id, err := own.Reserve(ctx, cmd.User, above)
	if err != nil {
		return nil, g.explain(ctx, err)
	}
	p, err := theirs.Detach(ctx, cmd, id, out)
	if errors.Is(err, fumehood.ErrNotStarted) {
		return nil, errors.Join(err, own.Forget(ctx, id))
	}
	if err != nil { // perhaps it runs: then it is listed, else its number is forgotten later
		return nil, g.explain(ctx, err)
	}
	return &detachedAs{p, own}, nil
}

// ofOthers puts, in a list of the own user's guest, the commands of others in the place of the numbers that are reserved for
// them. One whose guest does not answer hides only what that keeps.
func (g *guests) ofOthers(ctx context.Context, own *client.Guest, list []fumehood.DetachedInfo) ([]fumehood.DetachedInfo, error) {
	there := map[string]map[int]fumehood.DetachedInfo{} // by user, and number
	var all []fumehood.DetachedInfo
	for _, info := range list {
		if info.User == "" {
			all = append(all, info)
			continue
		}
		theirs, asked := there[info.User]
		if !asked {
			var err error
			if theirs, err = g.keptBy(ctx, info.User); err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				g.svc.sb.p.opts.Logger.Warn("a user's detached commands cannot be listed", "sandbox", g.svc.sb.spec.Name, "service", g.svc.Name, "user", info.User, "error", err)
			}
			there[info.User] = theirs
		}
		found, ok := theirs[info.ID]
		switch {
		case ok:
			found.User = info.User
			all = append(all, found)
		case theirs != nil && time.Since(info.Started) > startTimeout: // it is gone, and not being started
			if err := own.Forget(ctx, info.ID); err != nil {
				return nil, g.explain(ctx, err)
			}
		}
	}
	slices.SortFunc(all, func(a, b fumehood.DetachedInfo) int { return a.ID - b.ID })
	return all, nil
}

// keptBy lists the detached commands of another user's guest, by number. It is nil with an error only.
func (g *guests) keptBy(ctx context.Context, user string) (map[int]fumehood.DetachedInfo, error) {
	kept := map[int]fumehood.DetachedInfo{}
	theirs, err := g.residentOf(ctx, user, true)
	if errors.Is(err, errNobody) {
		return kept, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := theirs.Detached(ctx)
	if err != nil {
		return nil, g.explain(ctx, err)
	}
	for _, info := range all {
		if info.User == "" {
			kept[info.ID] = info
		}
	}
	return kept, nil
}

// joinAs looks at a detached command of another user.
func (g *guests) joinAs(ctx context.Context, own *client.Guest, info fumehood.DetachedInfo, out fumehood.Sink) (fumehood.DetachedBackend, error) {
	theirs, err := g.residentOf(ctx, info.User, true)
	if err != nil {
		return nil, err
	}
	p, err := theirs.Join(ctx, info, out)
	if err != nil {
		return nil, g.explain(ctx, err)
	}
	return &detachedAs{p, own}, nil
}
