package docker

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Opener = (*Provider)(nil)

// Open connects to a kept sandbox. It uses only the sandbox's labels, so it needs neither the process that started the
// sandbox nor a file on this machine.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	return p.life.OpenKept(ctx, name)
}

// Kept lists the kept sandboxes by name: all, or those of the given names that exist.
func (p *Provider) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	return p.life.Kept(ctx, names...)
}

// Logs passes on the output of a service's main process.
func (p *Provider) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	return p.life.Logs(ctx, name, service, opts, out)
}

// Renew postpones the expiry of a kept sandbox.
func (p *Provider) Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error) {
	return p.life.Renew(ctx, name, ttl)
}

// Find finds kept sandboxes by the labels of their containers.
func (p driver) Find(ctx context.Context, name string, expiries bool) ([]box.Found, error) {
	label := owner.LabelKept + "=true"
	if name != "" { // the containers of others may not answer
		label = owner.LabelSandbox + "=" + name
	}
	sandboxes, err := p.findKept(ctx, label)
	if err != nil {
		return nil, err
	}
	var renewals []engine.Object
	if expiries {
		if renewals, err = p.renewals(ctx, name); err != nil {
			return nil, err
		}
	}
	found := make([]box.Found, len(sandboxes))
	for i, containers := range sandboxes {
		found[i] = p.describeKept(containers, renewals)
	}
	return found, nil
}

// describeKept describes the kept sandbox of containers.
func (p driver) describeKept(containers []engine.State, renewals []engine.Object) box.Found {
	first, services := containers[0], byService(containers)
	marks := box.Marks(first.Labels)
	f := box.Found{KeptSandbox: provider.KeptSandbox{Info: marks.Info(p.Name()), Created: first.Created, Expires: marks.Expires(), States: map[string]string{}}}
	for _, r := range renewals {
		if until := timeOf(r, owner.LabelExpires); r.Labels[owner.LabelSandbox] == f.Name && !f.Expires.IsZero() && until.After(f.Expires) {
			f.Expires = until
		}
	}
	for _, s := range services {
		info := describeService(serviceOf(s[0]), s[0].Image, s[0])
		f.Services = append(f.Services, info)
		f.States[info.Name] = condition(s)
		f.Programs = append(f.Programs, s[0].Labels[owner.LabelMain] != owner.MainGuest)
	}
	f.Open = func(ctx context.Context) (box.Body, error) { return p.connect(ctx, f.Info, services) }
	f.Logs = func(ctx context.Context, i int, opts provider.LogOptions, out provider.Sink) error {
		return p.engine.Logs(ctx, services[i][0], opts, out)
	}
	f.Extend = func(ctx context.Context, until time.Time) error { return p.extend(ctx, f.Name, until) }
	return f
}

// connect connects to the kept sandbox of containers, by service.
func (p driver) connect(ctx context.Context, about fumehood.Info, services [][]engine.State) (box.Body, error) {
	first := services[0][0]
	if !first.Running {
		return nil, first.Unavailable()
	}
	name := about.Name
	about.Services = nil
	sb := &sandbox{p: p.Provider, Sandbox: box.Sandbox{
		Spec: fumehood.Spec{Name: name, Image: first.Image, Keep: true, Binary: first.Labels[owner.LabelBinary]}, About: about,
	}}
	sb.Key = box.Marks(first.Labels).Key()
	if folder := filepath.Join(p.stateDir, name); p.stateDir != "" && filepath.IsLocal(name) && owner.ReadFolder(folder).Kept {
		sb.folder = folder
	}
	for _, s := range services {
		guest, err := p.guestOf(ctx, s[0].Runtime)
		if err != nil {
			return nil, err
		}
		made := newService(sb, compose.Service{
			Guest: guest, Name: serviceOf(s[0]), Image: s[0].Image, Serves: s[0].Labels[owner.LabelMain] == owner.MainGuest, Ports: s[0].Ports,
		}, s)
		sb.services, sb.Services = append(sb.services, made), append(sb.Services, made.Service)
	}
	sb.unwatch = p.watch.Also(ctx, owner.LabelSandbox+"="+name)
	for _, c := range slices.Concat(services...) {
		if c.Running {
			p.watch.Runs(c.ID)
		}
	}
	return sb, nil
}

// condition describes the state of a service's containers, for display.
func condition(containers []engine.State) string {
	var all []string
	for _, c := range containers {
		status := c.Status
		switch {
		case c.Status == "exited":
			status = fmt.Sprintf("exited (%d)", c.ExitCode)
		case c.Running && c.Health != "":
			status = fmt.Sprintf("%s (%s)", c.Status, c.Health)
		}
		if !slices.Contains(all, status) {
			all = append(all, status)
		}
	}
	return strings.Join(all, ", ")
}

// findKept finds kept sandboxes by a label. It returns the containers of each, ordered by sandbox name; the default service
// comes first, then the others by service name and number.
func (p *Provider) findKept(ctx context.Context, label string) ([][]engine.State, error) {
	objects, err := p.engine.Objects(ctx, label, engine.Container)
	if err == nil {
		err = p.engine.Disown(ctx, objects)
	}
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o engine.Object) bool {
		return o.Foreign || o.Labels[owner.LabelKept] != "true" || o.Labels[compose.OneoffLabel] == "True"
	})
	containers := make([]engine.State, len(objects))
	err = box.InParallel(len(objects), func(i int) (err error) {
		containers[i], err = p.engine.Inspect(ctx, objects[i].ID)
		if engine.IsGone(err) { // removed just now
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	containers = slices.DeleteFunc(containers, func(c engine.State) bool { return c.ID == "" })
	slices.SortFunc(containers, func(a, b engine.State) int {
		return cmp.Or(
			strings.Compare(a.Labels[owner.LabelSandbox], b.Labels[owner.LabelSandbox]),
			-strings.Compare(a.Labels[owner.LabelDefault], b.Labels[owner.LabelDefault]),
			strings.Compare(serviceOf(a), serviceOf(b)),
			numberOf(a)-numberOf(b),
		)
	})
	return groupByKey(containers, func(c engine.State) string { return c.Labels[owner.LabelSandbox] }), nil
}

// byService groups a sandbox's containers.
func byService(containers []engine.State) [][]engine.State { return groupByKey(containers, serviceOf) }

// groupByKey splits sorted containers into runs with the same key.
func groupByKey(containers []engine.State, key func(engine.State) string) (groups [][]engine.State) {
	for i, c := range containers {
		if i == 0 || key(c) != key(containers[i-1]) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

func serviceOf(c engine.State) string { return c.Labels[compose.ServiceLabel] }

func numberOf(c engine.State) int {
	n, _ := strconv.Atoi(c.Labels[compose.NumberLabel]) // 0 without the label
	return n
}
