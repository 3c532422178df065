package docker

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Opener = (*Provider)(nil)

// Open connects to a kept sandbox. It uses only the sandbox's labels, so it needs neither the process that started the
// sandbox nor a file on this machine.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	op := "open sandbox " + name
	found, err := p.kept(ctx, owner.LabelSandbox+"="+name)
	if err != nil {
		return nil, within(ctx, op, err)
	}
	if len(found) == 0 {
		return nil, unknown(op, name)
	}
	containers := found[0]
	first := containers[0]
	if !first.Running {
		return nil, within(ctx, op, first.Unavailable())
	}
	sb := &sandbox{
		p: p, spec: fumehood.Spec{Name: name, Image: first.Image, Keep: true, Binary: first.Labels[owner.LabelBinary]}, started: true,
		of: described(first.Labels),
	}
	if sb.key, err = hex.DecodeString(first.Labels[owner.LabelKey]); err != nil || len(sb.key) != wire.SecretSize {
		sb.key = nil
	}
	if folder := filepath.Join(p.stateDir, name); p.stateDir != "" && filepath.IsLocal(name) && owner.ReadFolder(folder).Kept {
		sb.folder = folder
	}
	sb.ran.Store(true)
	for _, s := range byService(containers) {
		guest, err := p.guestOf(ctx, s[0].Runtime)
		if err != nil {
			return nil, within(ctx, op, err)
		}
		sb.services = append(sb.services, newService(sb, compose.Service{
			Guest: guest, Name: serviceOf(s[0]), Image: s[0].Image, Serves: s[0].Labels[owner.LabelMain] == owner.MainGuest, Ports: s[0].Ports,
		}, s))
	}
	_, place, err := p.open.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer place.Settle()
	sb.place = place
	sb.leave = p.watch.Also(ctx, owner.LabelSandbox+"="+name)
	for _, c := range containers {
		if c.Running {
			p.watch.Runs(c.ID)
		}
	}
	made := provider.New(sb, fumehood.Spec{Name: name}, nil)
	place.Hold(sb, made.Close)
	return made, nil
}

func unknown(op, name string) error {
	return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no sandbox named %q", name), Hint: "`fumehood ps` lists the named sandboxes"}
}

// Kept lists the kept sandboxes by name: all, or those of the given names that exist.
func (p *Provider) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	label, renewed := owner.LabelKept+"=true", ""
	if len(names) == 1 { // the containers of others may not answer
		label, renewed = owner.LabelSandbox+"="+names[0], names[0]
	}
	found, err := p.kept(ctx, label)
	if err != nil {
		return nil, within(ctx, "list sandboxes", err)
	}
	renewals, err := p.renewals(ctx, renewed)
	if err != nil {
		return nil, within(ctx, "list sandboxes", err)
	}
	var all []provider.KeptSandbox
	for _, containers := range found {
		first := containers[0]
		k := provider.KeptSandbox{
			Info: described(first.Labels), Created: first.Created, States: map[string]string{},
		}
		k.Name, k.Provider = first.Labels[owner.LabelSandbox], p.Name()
		if len(names) > 0 && !slices.Contains(names, k.Name) {
			continue
		}
		k.Expires, _ = time.Parse(time.RFC3339, first.Labels[owner.LabelExpires]) // zero without the label
		for _, r := range renewals {
			if until := timeOf(r, owner.LabelExpires); r.Labels[owner.LabelSandbox] == k.Name && !k.Expires.IsZero() && until.After(k.Expires) {
				k.Expires = until
			}
		}
		for _, s := range byService(containers) {
			info := newService(nil, compose.Service{Name: serviceOf(s[0]), Image: s[0].Image}, s).info
			k.Services = append(k.Services, info)
			k.States[info.Name] = condition(s)
		}
		all = append(all, k)
	}
	return all, nil
}

// condition describes the state of a service's containers, for display.
func condition(containers []engine.State) string {
	var all []string
	for _, c := range containers {
		what := c.Status
		switch {
		case c.Status == "exited":
			what = fmt.Sprintf("exited (%d)", c.ExitCode)
		case c.Running && c.Health != "":
			what = fmt.Sprintf("%s (%s)", c.Status, c.Health)
		}
		if !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	return strings.Join(all, ", ")
}

// Logs passes on the output of a service's main process.
func (p *Provider) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	op := "read logs of " + name
	found, err := p.kept(ctx, owner.LabelSandbox+"="+name)
	if err != nil {
		return within(ctx, op, err)
	}
	if len(found) == 0 {
		return unknown(op, name)
	}
	container := found[0][0]
	if service != "" {
		i := slices.IndexFunc(found[0], func(c engine.State) bool { return serviceOf(c) == service })
		if i < 0 {
			return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no service %q in %s", service, name), Hint: "`fumehood ps` lists the services"}
		}
		container = found[0][i]
	}
	if container.Labels[owner.LabelMain] == owner.MainGuest {
		return &fumehood.Error{
			Op: op, Service: serviceOf(container), Class: fumehood.ErrUnsupported, Err: errors.New("its main process is Fumehood's own, which only waits for commands"),
			Hint: "`fumehood process` shows the output of detached commands",
		}
	}
	if err := p.engine.Logs(ctx, container, opts, out); err != nil {
		return within(ctx, op, err)
	}
	return nil
}

// kept finds kept sandboxes by a label. It returns the containers of each, ordered by sandbox name; the default service
// comes first, then the others by service name and number.
func (p *Provider) kept(ctx context.Context, label string) ([][]engine.State, error) {
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
	err = inParallel(len(objects), func(i int) (err error) {
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
	return grouped(containers, func(c engine.State) string { return c.Labels[owner.LabelSandbox] }), nil
}

// byService groups a sandbox's containers.
func byService(containers []engine.State) [][]engine.State { return grouped(containers, serviceOf) }

// grouped splits sorted containers into runs with the same key.
func grouped(containers []engine.State, key func(engine.State) string) (groups [][]engine.State) {
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
