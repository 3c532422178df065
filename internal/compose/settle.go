package compose

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

// settle checks the project and decides everything that does not depend on a policy. Its error includes what was
// refused before.
func (p *Project) settle(src fumehood.Compose, refused []refusal) error {
	p.order = p.places.order(p.as.Services)
	if p.as.Networks == nil {
		p.as.Networks = types.Networks{}
	}
	if p.as.Volumes == nil {
		p.as.Volumes = types.Volumes{}
	}
	if p.as.Configs == nil {
		p.as.Configs = types.Configs{}
	}
	c := &checking{Project: p, allow: src.AllowUnsafe, offline: src.Offline, taken: map[string]bool{}, errs: refused}
	p.settings = c.parseSettings()
	p.internal = p.settings.egress == "" && src.Egress == ""
	p.nameServices()
	p.main = c.defaultService(src.Service)
	return c.check()
}

// defaultService returns the service for commands that name none.
func (c *checking) defaultService(wanted string) string {
	var started, marked []string
	for _, name := range c.order {
		svc := c.as.Services[name]
		if svc.GetScale() == 0 {
			continue
		}
		started = append(started, name)
		if isDefault, _ := c.flag(name, "x-default"); isDefault {
			marked = append(marked, name)
		}
	}
	switch {
	case len(started) == 0:
		c.errs = append(c.errs, refusal{err: errors.New("there is no service to start: none is active, or all have a scale of 0")})
		return ""
	case wanted != "":
		if !slices.Contains(started, wanted) {
			c.errs = append(c.errs, refusal{err: fmt.Errorf("there is no service %q; there are: %s", wanted, strings.Join(started, ", "))})
		}
		return wanted
	case slices.Contains(started, DefaultService):
		return DefaultService
	case len(marked) > 1:
		c.refuse([]string{"services", marked[1], "x-default"}, "service %s has it too", marked[0])
	case len(marked) == 0:
		return started[0]
	}
	return marked[0]
}

// flag returns the value of a boolean extension of a service, false if it is not set, and whether it is a boolean.
func (p *Project) flag(service, key string) (value, valid bool) {
	v, ok := p.as.Services[service].Extensions[key]
	if !ok {
		return false, true
	}
	value, valid = v.(bool)
	return value, valid
}

// nameServices replaces references to containers of the project, by container_name, with references to their services,
// because the containers get other names.
func (p *Project) nameServices() {
	byName := map[string]string{}
	for name, svc := range p.as.Services {
		if svc.ContainerName != "" {
			byName[svc.ContainerName] = name
		}
	}
	for _, name := range p.order {
		svc := p.as.Services[name]
		refer := func(key, ref string) string {
			container, rest, _ := strings.Cut(strings.TrimPrefix(ref, types.ContainerPrefix), ":")
			other, ok := byName[container]
			if !ok || !strings.HasPrefix(ref, types.ContainerPrefix) || other == name {
				return ref
			}
			if _, ok := svc.DependsOn[other]; !ok {
				depends := maps.Clone(svc.DependsOn)
				if depends == nil {
					depends = types.DependsOnConfig{}
				}
				depends[other] = types.ServiceDependency{Condition: types.ServiceConditionStarted, Required: true}
				svc.DependsOn = depends
			}
			to := types.ServicePrefix + other
			if key == "volumes_from" {
				to = strings.TrimSuffix(other+":"+rest, ":")
			}
			p.notes = append(p.notes, Change{Service: name, Key: key, From: ref, To: to, Reason: "containers get names of their own"})
			return to
		}
		svc.NetworkMode = refer("network_mode", svc.NetworkMode)
		svc.Pid = refer("pid", svc.Pid)
		svc.Ipc = refer("ipc", svc.Ipc)
		for i, ref := range svc.VolumesFrom {
			svc.VolumesFrom[i] = refer("volumes_from", ref)
		}
		p.as.Services[name] = svc
	}
}
