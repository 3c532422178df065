//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Opener = (*Provider)(nil)

// keptFolder returns the folder of a kept sandbox.
func (p *Provider) keptFolder(op, name string) (owner.Folder, error) {
	if name != "" && filepath.IsLocal(name) && filepath.Base(name) == name {
		if f := owner.ReadFolder(filepath.Join(p.stateDir, name)); f.Kept {
			return f, nil
		}
	}
	return owner.Folder{}, &fumehood.Error{
		Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no sandbox named %q", name), Hint: "`fumehood ps` lists the named sandboxes",
	}
}

// Open connects to a kept sandbox, which this or another process has started.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	op := "open sandbox " + name
	folder, err := p.keptFolder(op, name)
	if err != nil {
		return nil, err
	}
	_, place, err := p.open.Begin(ctx, "")
	if err != nil {
		return nil, failed(op, err)
	}
	defer place.Settle()
	s, err := p.found(folder.Path)
	if err == nil {
		s.place = place
		for _, service := range s.services {
			err = cmp.Or(err, (host{service}).Death(ctx).Err)
		}
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}
	if err != nil {
		return nil, failed(op, err)
	}
	sb := provider.New(s, fumehood.Spec{Name: name}, nil)
	place.Hold(s, sb.Close)
	return sb, nil
}

// failed returns err as an error of this module's with an operation.
func failed(op string, err error) error {
	ours, ok := errors.AsType[*fumehood.Error](err)
	if !ok {
		ours = &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	}
	ours.Op = op
	return ours
}

// found returns the sandbox with a folder.
func (p *Provider) found(folder string) (*sandbox, error) {
	st, err := readState(folder)
	if err != nil {
		return nil, err
	}
	sb := &sandbox{p: p, name: filepath.Base(folder), folder: folder, guest: st.Guest, key: st.Key, of: st.Info, helper: st.Helper}
	sb.kept.Store(true)
	sb.ran.Store(true)
	for i, has := range st.Services {
		s := &service{sb: sb, info: st.Info.Services[i], config: has.Config, term: has.Term, runs: has.Runs}
		if s.cgroup, err = openCgroup(folder, groupOf(folder, s.info.Name, len(st.Services) > 1), fumehood.Limits{}); err == nil {
			s.cgroup = s.cgroup.reopen()
			s.init, err = find(has.First)
		}
		if err != nil {
			return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
		}
		s.before = s.cgroup.ooms()
		s.manageGuests()
		sb.services = append(sb.services, s)
	}
	return sb, nil
}

// Kept lists the kept sandboxes by name: all, or those of the given names that exist.
func (p *Provider) Kept(_ context.Context, names ...string) ([]provider.KeptSandbox, error) {
	folders, err := owner.Folders(p.stateDir) // by name
	if err != nil {
		return nil, failed("list sandboxes", err)
	}
	var all []provider.KeptSandbox
	for _, f := range folders {
		if !f.Kept || len(names) > 0 && !slices.Contains(names, f.Name) {
			continue
		}
		k := provider.KeptSandbox{Expires: f.Expires, States: map[string]string{}}
		st, err := readState(f.Path)
		k.Info, k.Created = st.Info, st.Created
		if err != nil {
			p.log.Warn("a kept sandbox is damaged", "sandbox", f.Name, "error", err)
			k.Info = fumehood.Info{Name: f.Name, Provider: p.Name(), Services: []fumehood.ServiceInfo{{Name: defaultService}}}
			k.States[defaultService] = "damaged"
		}
		for i, s := range st.Services {
			k.States[st.Info.Services[i].Name] = condition(f.Path, groupOf(f.Path, st.Info.Services[i].Name, len(st.Services) > 1), s.First)
		}
		all = append(all, k)
	}
	return all, nil
}

// condition describes the state of a service of the sandbox with a folder, for display.
func condition(folder, name, first string) string {
	p, err := find(first)
	if err != nil {
		return "unknown"
	}
	if p.pidfd == nil {
		return "ended"
	}
	_ = p.pidfd.Close() // nothing was written
	if group, err := openCgroup(folder, name, fumehood.Limits{}); err == nil && group.frozen() {
		return "paused"
	}
	return "running"
}

// Renew postpones the expiry of a kept sandbox.
func (p *Provider) Renew(_ context.Context, name string, ttl time.Duration) (time.Time, error) {
	op := "renew sandbox " + name
	folder, err := p.keptFolder(op, name)
	if err != nil {
		return time.Time{}, err
	}
	expires := time.Now().Add(ttl).UTC().Truncate(time.Second)
	if folder.Expires.IsZero() || !expires.After(folder.Expires) {
		return folder.Expires, nil
	}
	if err := owner.Keep(folder.Path, expires); err != nil {
		return time.Time{}, failed(op, err)
	}
	return expires, nil
}
