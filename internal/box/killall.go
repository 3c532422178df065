package box

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.AllKiller = (*Service)(nil)

// KillAll kills the processes of all commands in the service, and what they left.
func (s *Service) KillAll(ctx context.Context) error {
	if s.Direct {
		return &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("only a guest can kill all processes, and this transport uses none"),
			Hint: "close the sandbox",
		}
	}
	if err := s.Guests.KillAll(ctx); err != nil {
		return s.Guests.Explain(ctx, err)
	}
	return nil
}

// KillAll asks all guests of the service to kill. Each may kill other processes. The guests of other users come first, so that
// their commands count as killed by the caller.
func (m *Guests) KillAll(ctx context.Context) error {
	others, err := m.otherRoles(ctx)
	if err != nil {
		return err
	}
	left, late := 0, []role(nil)
	for _, r := range others {
		n, err := m.killAs(ctx, r)
		switch {
		case errors.Is(err, fumehood.ErrLimit): // its guest does not run, and needs processes that are free afterwards
			late = append(late, r)
		case err != nil:
			return err
		}
		left = max(left, n)
	}
	own := func() error {
		_, err := m.reach(ctx, "", func(u *guest) error {
			n, err := u.KillAll(ctx)
			if left = max(left, n); m.cfg.Serves { // it sees all processes
				left = n
			}
			return err
		})
		return m.explainLost(ctx, err)
	}
	if err := own(); err != nil {
		return err
	}
	for _, r := range late {
		n, err := m.killAs(ctx, r)
		if err != nil {
			return err
		}
		left = max(left, n)
	}
	if len(late) > 0 {
		if err := own(); err != nil {
			return err
		}
	}
	if left > 0 {
		return &fumehood.Error{
			Class: fumehood.ErrPermission, Err: fmt.Errorf("%d processes could not be killed", left), Hint: "close the sandbox",
		}
	}
	return nil
}

// killAs asks the guest of another user to kill. It returns how many processes that guest could not kill.
func (m *Guests) killAs(ctx context.Context, r role) (left int, err error) {
	u, err := m.at(ctx, r, r.keeps)
	if errors.Is(err, errNobody) {
		return 0, nil
	}
	if err == nil {
		left, err = u.KillAll(ctx)
	}
	return left, m.explainLost(ctx, err)
}

// otherRoles returns the roles of guests of other users than the service's own, that run, or have died and left processes.
func (m *Guests) otherRoles(ctx context.Context) ([]role, error) {
	all := map[role]bool{}
	m.mu.Lock()
	for r := range m.guests {
		all[r] = true
	}
	for r := range m.dead {
		all[r] = true
	}
	m.mu.Unlock()
	if m.cfg.Key != nil {
		own, err := m.keeper(ctx)
		var list []provider.DetachedInfo
		if err == nil {
			list, err = own.Detached(ctx)
		}
		if err != nil {
			return nil, m.explainLost(ctx, err)
		}
		for _, info := range list {
			all[role{info.User, true}] = info.User != ""
		}
	}
	var roles []role
	for r, is := range all {
		if is && r.user != "" {
			roles = append(roles, r)
		}
	}
	return roles, nil
}
