package guests

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/client"
	"github.com/fumehood/fumehood/provider"
)

// Detached commands of other users than the service's own are kept by resident guests of theirs. Their numbers are those of the
// own user's guest, which is also who knows that they are there.

// startTimeout bounds the start of a command whose number was reserved.
const startTimeout = 30 * time.Second

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
func (m *Manager) detachAs(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (provider.ProcessBackend, error) {
	own, err := m.keeper(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := m.at(ctx, role{cmd.User, true}, false)
	if err != nil {
		return nil, err
	}
	there, err := theirs.Detached(ctx)
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
	p, err := theirs.Detach(ctx, cmd, id, out)
	if errors.Is(err, fumehood.ErrNotStarted) {
		return nil, errors.Join(err, own.Forget(ctx, id))
	}
	if err != nil { // perhaps it runs: then it is listed, else its number is forgotten later
		return nil, m.explainLost(ctx, err)
	}
	return &detachedAs{p, own}, nil
}

// ofOthers puts, in a list of the own user's guest, the commands of others in the place of the numbers that are reserved for
// them. One whose guest does not answer hides only what that keeps.
func (m *Manager) ofOthers(ctx context.Context, own *client.Guest, list []provider.DetachedInfo) ([]provider.DetachedInfo, error) {
	there := map[string]map[int]provider.DetachedInfo{} // by user, and number
	var all []provider.DetachedInfo
	for _, info := range list {
		if info.User == "" {
			all = append(all, info)
			continue
		}
		theirs, asked := there[info.User]
		if !asked {
			var err error
			if theirs, err = m.keptBy(ctx, info.User); err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				m.cfg.Log.Warn("a user's detached commands cannot be listed", "user", info.User, "error", err)
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
				return nil, m.explainLost(ctx, err)
			}
		}
	}
	slices.SortFunc(all, func(a, b provider.DetachedInfo) int { return a.ID - b.ID })
	return all, nil
}

// keptBy lists the detached commands of another user's guest, by number. It is nil with an error only.
func (m *Manager) keptBy(ctx context.Context, user string) (map[int]provider.DetachedInfo, error) {
	kept := map[int]provider.DetachedInfo{}
	theirs, err := m.at(ctx, role{user, true}, true)
	if errors.Is(err, errNobody) {
		return kept, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := theirs.Detached(ctx)
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

// joinAs looks at a detached command of another user.
func (m *Manager) joinAs(ctx context.Context, own *client.Guest, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	theirs, err := m.at(ctx, role{info.User, true}, true)
	if err != nil {
		return nil, err
	}
	p, err := theirs.Join(ctx, info, out)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	return &detachedAs{p, own}, nil
}
