package docker

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Opener = (*Provider)(nil)

// Open reaches a kept sandbox by what its labels tell: neither the process that started it nor a file of this
// machine is needed.
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
	sb.leave = p.watch.Also(ctx, owner.LabelSandbox+"="+name)
	if err := p.hold(sb); err != nil {
		sb.leave()
		return nil, err
	}
	return provider.New(sb, fumehood.Spec{Name: name}, nil), nil
}

func unknown(op, name string) error {
	return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("there is no named sandbox %q", name), Hint: "`fumehood ps` lists those that there are"}
}

// Kept lists the kept sandboxes by name.
func (p *Provider) Kept(ctx context.Context) ([]provider.KeptSandbox, error) {
	found, err := p.kept(ctx, owner.LabelKept+"=true")
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
		k.Expires, _ = time.Parse(time.RFC3339, first.Labels[owner.LabelExpires]) // zero where there is none
		for _, s := range byService(containers) {
			info := newService(nil, compose.Service{Name: serviceOf(s[0]), Image: s[0].Image}, s).info
			k.Services = append(k.Services, info)
			k.States[info.Name] = condition(s)
		}
		all = append(all, k)
	}
	return all, nil
}

// condition says in what state a service's containers are, for people.
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

// Logs passes on what the main process of a service has written.
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
			return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no service %q in %s", service, name), Hint: "`fumehood ps` lists them"}
		}
		container = found[0][i]
	}
	if container.Labels[owner.LabelMain] == owner.MainGuest {
		return &fumehood.Error{
			Op: op, Service: serviceOf(container), Class: fumehood.ErrUnsupported, Err: errors.New("its main process is Fumehood's own, which only waits for commands"),
			Hint: "`fumehood process` tells what detached commands write",
		}
	}
	if err := p.engine.Logs(ctx, container, opts, out); err != nil {
		return within(ctx, op, err)
	}
	return nil
}

// kept finds kept sandboxes by a label, in the order of their names: the containers of each, those of the
// default service first, then by service and number.
func (p *Provider) kept(ctx context.Context, label string) ([][]engine.State, error) {
	objects, err := p.engine.Objects(ctx, label, engine.Container)
	if err == nil {
		err = p.engine.Disown(ctx, objects)
	}
	if err != nil {
		return nil, err
	}
	var containers []engine.State
	for _, o := range objects {
		if o.Foreign || o.Labels[owner.LabelKept] != "true" || o.Labels[compose.OneoffLabel] == "True" {
			continue
		}
		state, err := p.engine.Inspect(ctx, o.ID)
		switch {
		case engine.IsGone(err): // it was removed just now
		case err != nil:
			return nil, err
		default:
			containers = append(containers, state)
		}
	}
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

// grouped splits what is in order into runs of the same key.
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
	n, _ := strconv.Atoi(c.Labels[compose.NumberLabel]) // 0 where there is none
	return n
}
