package box

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// Detached commands of users other than the service's own are kept by resident guests of these users. The guest of the
// service's own user assigns their numbers, and has the list of all detached commands.

// startTimeout bounds the start of a command whose number was reserved.
const startTimeout = 30 * time.Second

// detachedAs is a detached command of a user other than the service's own.
type detachedAs struct {
	*host.Detached
	own *host.Guest // the guest of the service's own user, which has its number
}

// Forget drops the command, which must have ended, and then its number.
func (d *detachedAs) Forget(ctx context.Context) error {
	if err := d.Detached.Forget(ctx); err != nil {
		return err
	}
	return d.own.Forget(ctx, d.ID())
}

// detachAs starts a command of another user that outlives this process.
func (m *Guests) detachAs(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (provider.DetachedBackend, error) {
	own, err := m.keeper(ctx)
	if err != nil {
		return nil, err
	}
	guest, err := m.at(ctx, role{cmd.User, true}, false)
	if err != nil {
		return nil, err
	}
	there, err := guest.Detached(ctx)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	above := 0
	if len(there) > 0 {
		above = there[len(there)-1].ID
	}
	id, err := own.Reserve(ctx, cmd.User, above)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	p, err := guest.Detach(ctx, cmd, id, out)
	if errors.Is(err, fumehood.ErrNotStarted) {
		return nil, errors.Join(err, own.Forget(ctx, id))
	}
	if err != nil { // it may run: then it is listed; otherwise its number is dropped later
		return nil, m.explainLost(ctx, err)
	}
	return &detachedAs{p, own}, nil
}

// ofOthers replaces the reserved numbers in a list of the own user's guest by the commands of other users. If a guest
// does not answer, only its own commands are missing from the list.
func (m *Guests) ofOthers(ctx context.Context, own *host.Guest, list []provider.DetachedInfo) ([]provider.DetachedInfo, error) {
	there := map[string]map[int]provider.DetachedInfo{} // by user, and number
	var all []provider.DetachedInfo
	for _, info := range list {
		if info.User == "" {
			all = append(all, info)
			continue
		}
		infos, asked := there[info.User]
		if !asked {
			var err error
			if infos, err = m.listDetachedOf(ctx, info.User); err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				m.cfg.Log.Warn("a user's detached commands cannot be listed", "user", info.User, "error", err)
			}
			there[info.User] = infos
		}
		found, ok := infos[info.ID]
		switch {
		case ok:
			found.User = info.User
			all = append(all, found)
		case infos != nil && time.Since(info.Started) > startTimeout: // it is gone, and not being started
			if err := own.Forget(ctx, info.ID); err != nil {
				return nil, m.explainLost(ctx, err)
			}
		}
	}
	slices.SortFunc(all, func(a, b provider.DetachedInfo) int { return a.ID - b.ID })
	return all, nil
}

// listDetachedOf returns the detached commands of another user's guest, by number. The result is nil only with an error.
func (m *Guests) listDetachedOf(ctx context.Context, user string) (map[int]provider.DetachedInfo, error) {
	kept := map[int]provider.DetachedInfo{}
	guest, err := m.at(ctx, role{user, true}, true)
	if errors.Is(err, errNobody) {
		return kept, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := guest.Detached(ctx)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	for _, info := range all {
		if info.User == "" {
			kept[info.ID] = info
		}
	}
	return kept, nil
}

// joinAs attaches to a detached command of another user.
func (m *Guests) joinAs(ctx context.Context, own *host.Guest, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	guest, err := m.at(ctx, role{info.User, true}, true)
	if err != nil {
		return nil, err
	}
	p, err := guest.Join(ctx, info, out)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	return &detachedAs{p, own}, nil
}
