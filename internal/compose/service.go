package compose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

// Service is the information that the provider needs to start a service.
type Service struct {
	Name       string
	Containers []string // the names of its containers, at least one; commands run in the first
	Image      string   // the image's reference
	Serves     bool     // the main process is a guest that serves the host
	Guest      string   // the path of the guest's program in its containers
	After      []Dependency
	// Ports are the ports that the Engine publishes. Forward are ports that it does not publish, so that the host has
	// to forward connections to them.
	Forward, Ports []fumehood.Port
	// Hooked reports whether more than a container start is needed: contents of secrets and configs are copied into it,
	// or commands run in it after the start. composesdk.SDK.Start does all of this.
	Hooked bool
	// HookUsers are the users of the commands that run in it after its start, if they differ from the service's own.
	// Users of privileged commands are not included.
	HookUsers []string
	// Groups are the additional groups of its processes, each a name or an id.
	Groups []string
	// Early reports whether the service can start when its dependencies have started, even if they are not healthy yet.
	// Its main process is a guest, which does nothing before it gets commands, and it mounts nothing that they could
	// replace before they are healthy.
	Early bool
}

// Dependency is a service that another one waits for.
type Dependency struct {
	Service   string
	Condition string // one of the constants below
	Required  bool   // if false, its failure does not affect the waiting service
}

// Conditions that a service can wait for.
const (
	Started   = types.ServiceConditionStarted
	Healthy   = types.ServiceConditionHealthy
	Completed = types.ServiceConditionCompletedSuccessfully
)

// Services returns the services that have containers: the default service first, the others sorted by name.
func (p *Project) Services() []Service {
	var all []Service
	for _, name := range slices.Sorted(maps.Keys(p.project.Services)) {
		if s := p.describe(p.project.Services[name]); len(s.Containers) > 0 {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Service) int {
		switch p.main {
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return 0
	})
	return all
}

func (p *Project) describe(svc types.ServiceConfig) Service {
	s := Service{
		Name: svc.Name, Image: imageName(svc, p.project.Name), Serves: p.serve[svc.Name], Guest: p.runtimes.Guest(svc.Runtime),
		Forward: p.forward[svc.Name], Hooked: p.hooked(svc),
		Groups: svc.GroupAdd,
	}
	for _, hook := range svc.PostStart {
		if hook.User != "" && !hook.Privileged {
			s.HookUsers = append(s.HookUsers, hook.User)
		}
	}
	for n := range svc.GetScale() {
		s.Containers = append(s.Containers, containerName(p.project.Name, svc, n+1))
	}
	for _, name := range slices.Sorted(maps.Keys(svc.DependsOn)) {
		if on, ok := p.project.Services[name]; !ok || on.GetScale() == 0 {
			continue // it is not started
		}
		dep := svc.DependsOn[name]
		s.After = append(s.After, Dependency{Service: name, Condition: dep.Condition, Required: dep.Required})
	}
	s.Early = s.Serves && !s.Hooked && len(s.After) > 0 && !p.mountsParts(svc.Name)
	for _, port := range svc.Ports {
		host, _ := strconv.Atoi(port.Published) // 0 if the Engine chooses
		s.Ports = append(s.Ports, fumehood.Port{Host: host, Container: int(port.Target), Protocol: port.Protocol, Address: port.HostIP})
	}
	return s
}

func (p *Project) hooked(svc types.ServiceConfig) bool {
	injected := func(o types.FileObjectConfig) bool { return o.Content != "" || o.Environment != "" }
	return len(svc.PostStart) > 0 ||
		slices.ContainsFunc(svc.Secrets, func(s types.ServiceSecretConfig) bool {
			return injected(types.FileObjectConfig(p.project.Secrets[s.Source]))
		}) ||
		slices.ContainsFunc(svc.Configs, func(c types.ServiceConfigObjConfig) bool {
			return injected(types.FileObjectConfig(p.project.Configs[c.Source]))
		})
}

// mountsParts reports whether a service mounts a path of the host or within a volume. Such a mount shows the files that
// exist when the container starts. A whole volume is the same before and after, unless its driver mounts something.
func (p *Project) mountsParts(service string) bool {
	svc := p.as.Services[service] // before the guest's mounts are added
	return len(svc.Secrets)+len(svc.Configs)+len(svc.VolumesFrom) > 0 || slices.ContainsFunc(svc.Volumes, func(v types.ServiceVolumeConfig) bool {
		switch v.Type {
		case types.VolumeTypeVolume:
			return v.Volume != nil && v.Volume.Subpath != "" || p.as.Volumes[v.Source].DriverOpts["device"] != ""
		case types.VolumeTypeTmpfs:
			return false
		}
		return true
	})
}

// imageName returns the SDK's name for a service's image.
func imageName(svc types.ServiceConfig, project string) string {
	return cmp.Or(svc.Image, project+"-"+svc.Name)
}

// containerName returns the SDK's name for a service's n-th container, counted from 1.
func containerName(project string, svc types.ServiceConfig, n int) string {
	if svc.ContainerName != "" {
		return svc.ContainerName
	}
	return fmt.Sprintf("%s-%s-%d", project, svc.Name, n)
}
