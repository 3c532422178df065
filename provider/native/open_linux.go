//go:build amd64 || arm64

package native

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Opener = (*Provider)(nil)

// Open connects to a kept sandbox, which this or another process has started.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	return p.life.OpenKept(ctx, name)
}

// Kept lists the kept sandboxes by name: all, or those of the given names that exist.
func (p *Provider) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	return p.life.Kept(ctx, names...)
}

// Logs sends the output of a service's own program to out. Its guest keeps the last MiB of each of the two outputs, in
// which Tail counts lines.
func (p *Provider) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	return p.life.Logs(ctx, name, service, opts, out)
}

// Renew postpones the expiry of a kept sandbox.
func (p *Provider) Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error) {
	return p.life.Renew(ctx, name, ttl)
}

// Find finds kept sandboxes by their folders.
func (p driver) Find(_ context.Context, name string, _ bool) ([]box.Found, error) {
	var folders []owner.Folder
	var err error
	switch {
	case name == "":
		if folders, err = owner.Folders(p.stateDir); err != nil { // by name
			return nil, err
		}
	case filepath.IsLocal(name) && filepath.Base(name) == name:
		folders = append(folders, owner.ReadFolder(filepath.Join(p.stateDir, name)))
	}
	var all []box.Found
	for _, f := range folders {
		if f.Kept {
			all = append(all, p.describeKept(f))
		}
	}
	return all, nil
}

// describeKept describes the kept sandbox with a folder.
func (p driver) describeKept(f owner.Folder) box.Found {
	st, err := readState(f.Path)
	found := box.Found{KeptSandbox: provider.KeptSandbox{Info: st.info(p.Name()), Created: st.Created, Expires: f.Expires, States: map[string]string{}}}
	if err != nil {
		p.log.Warn("a kept sandbox is damaged", "sandbox", f.Name, "error", err)
		found.Info = fumehood.Info{Name: f.Name, Provider: p.Name(), Services: []fumehood.ServiceInfo{{Name: compose.DefaultService}}}
		found.States[compose.DefaultService], found.Programs = "damaged", []bool{true}
	}
	for _, s := range st.Services {
		name := s.Info.Name
		found.States[name] = condition(f.Path, groupOf(f.Path, name, len(st.Services) > 1), s.First)
		found.Programs = append(found.Programs, s.Runs)
	}
	found.Open = func(ctx context.Context) (box.Body, error) { return p.open(ctx, f.Path) }
	found.Logs = func(ctx context.Context, i int, opts provider.LogOptions, out provider.Sink) error {
		sb, err := p.connect(f.Path)
		if err != nil {
			return err
		}
		defer sb.Leave()
		return sb.Services[i].Output(ctx, opts, out)
	}
	found.Extend = func(_ context.Context, until time.Time) error { return owner.Keep(f.Path, until) }
	return found
}

// open connects to the kept sandbox with a folder, whose services must run.
func (p driver) open(ctx context.Context, folder string) (box.Body, error) {
	sb, err := p.connect(folder)
	if err != nil {
		return nil, err
	}
	for _, s := range sb.services {
		if err := (unit{s}).Death(ctx).Err; err != nil {
			sb.Leave()
			return nil, err
		}
	}
	return sb, nil
}

// connect returns the kept sandbox with a folder.
func (p driver) connect(folder string) (*sandbox, error) {
	st, err := readState(folder)
	if err != nil {
		return nil, err
	}
	sb := &sandbox{
		Sandbox: box.Sandbox{Spec: fumehood.Spec{Name: filepath.Base(folder), Keep: true}, About: st.info(p.Name()), Key: st.Marks.Key()},
		p:       p.Provider, folder: folder, guest: st.Guest, helper: st.Helper,
	}
	for _, described := range st.Services {
		s := &service{sb: sb, config: described.Config, runs: described.Runs}
		s.Service = &box.Service{Info: described.Info, Term: described.Term, Backend: s}
		if s.cgroup, err = openCgroup(folder, groupOf(folder, s.Info.Name, len(st.Services) > 1), fumehood.Limits{}); err == nil {
			s.cgroup = s.cgroup.reopen()
			s.init, err = find(described.First)
		}
		if err != nil {
			return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
		}
		s.before = s.cgroup.ooms()
		s.manageGuests()
		sb.add(s)
	}
	return sb, nil
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
