package compose

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

// Member is a service of a sandbox in which all services share a network namespace, as in a Pod.
type Member struct {
	Service
	// Spec is the caller's, with the service's user, folder, variables, limits, mounts, ports and network.
	Spec fumehood.Spec
	// Program is the service's own program with its arguments. It is nil if the service only waits: then Serves is set.
	Program []string
	// Restart is the name of the policy for a program that has ended: "no", "always", "on-failure" or "unless-stopped".
	// MostRestarts limits the restarts with on-failure; 0 is no limit.
	Restart      string
	MostRestarts int
	Health       *Health  // nil without a health check
	Unset        []string // variables of the image that the service has not
	Hostname     string
	Hosts        []string // lines of /etc/hosts
	Capabilities []string // without CAP_
	Volumes      []Volume
	Tmpfs        []fumehood.Tmpfs // each at most as large as the memory limit
	ReadOnly     bool
	Shm          int64 // the size of /dev/shm in bytes; 0 means the default
}

// Volume is a volume of the project, mounted in a service. A volume without a Name is the service's own.
type Volume struct {
	Name, Container string
	Writable        bool
}

// Health is a health check. Test is its program with arguments. StartInterval replaces Interval in the start period
// unless it is 0.
type Health struct {
	Test                                          []string
	StartPeriod, StartInterval, Interval, Timeout time.Duration
	Retries                                       int
}

// Members returns the services of the project, the default one first. images are those of all services. The changes
// include the settings that break the isolation and were allowed. CheckPod must have accepted the project, unless it is
// FromSpec's. The error is an ErrUnsupported that names file and line.
func (p *Project) Members(spec fumehood.Spec, images map[string]Image) ([]Member, []Change, error) {
	if err := p.CheckPrograms(images); err != nil {
		return nil, nil, err
	}
	changes := p.Apply(Policy{Volume: guestVolume, Serve: true, Limits: spec.Limits, Images: images})
	c := &checking{Project: p}
	var all []Member
	var hosts []string
	for _, s := range p.Services() {
		svc := p.project.Services[s.Name]
		m := Member{
			Service: s, Spec: p.memberSpec(spec, &svc), Hostname: cmp.Or(svc.Hostname, s.Name), Health: healthOf(&svc, images[s.Name].Health),
			ReadOnly: svc.ReadOnly, Shm: int64(svc.ShmSize),
		}
		m.Restart, m.MostRestarts = restartOf(&svc)
		for _, name := range slices.Sorted(maps.Keys(svc.Environment)) {
			if svc.Environment[name] == nil {
				m.Unset = append(m.Unset, name)
			}
		}
		for _, name := range svc.CapAdd {
			m.Capabilities = append(m.Capabilities, capability(name))
		}
		if !s.Serves {
			m.Program = mainProgram(&svc, images[s.Name])
			c.program(&svc)
		}
		p.memberMounts(&svc, &m)
		if spec.Compose == nil { // the only service has the sandbox's name
			m.Hostname, m.Health = spec.Name, nil
			return append(all, m), changes, nil
		}
		own := p.as.Services[s.Name] // before the policy removed the container's name
		hosts = append(hosts, "127.0.0.1\t"+strings.Join(namesOf(&own), " "))
		all = append(all, m)
	}
	for i := range all {
		all[i].Hosts = slices.Clone(hosts)
		extra := p.as.Services[all[i].Name].ExtraHosts
		for _, name := range slices.Sorted(maps.Keys(extra)) {
			for _, address := range extra[name] {
				all[i].Hosts = append(all[i].Hosts, strings.Trim(address, "[]")+"\t"+name)
			}
		}
	}
	return all, changes, unsupportedError(c.err())
}

// program checks what runs a service's own program.
func (c *checking) program(svc *types.ServiceConfig) {
	why := c.runner.lacks("starts programs without a terminal, and with an empty standard input")
	switch {
	case svc.Tty:
		c.refuse(of(svc, "tty"), "%s", why)
	case svc.StdinOpen:
		c.refuse(of(svc, "stdin_open"), "%s", why)
	}
}

// namesOf returns the names by which other services find a service.
func namesOf(svc *types.ServiceConfig) []string {
	names := []string{svc.Name}
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(svc.ContainerName)
	add(svc.Hostname)
	for _, key := range slices.Sorted(maps.Keys(svc.Networks)) {
		if n := svc.Networks[key]; n != nil {
			for _, name := range n.Aliases {
				add(name)
			}
		}
	}
	return names
}

// memberSpec returns the caller's spec with the settings of an applied service. A spec without a project has them.
func (p *Project) memberSpec(spec fumehood.Spec, svc *types.ServiceConfig) fumehood.Spec {
	if spec.Compose == nil {
		return spec
	}
	spec.Mounts = nil // not the array that the services of the caller's spec would share
	spec.User, spec.Dir, spec.Env = svc.User, svc.WorkingDir, map[string]string{}
	for name, value := range svc.Environment {
		if value != nil {
			spec.Env[name] = *value
		}
	}
	spec.Limits = p.memberLimits(svc, spec.Limits)
	for _, v := range svc.Volumes {
		if v.Type == types.VolumeTypeBind {
			spec.Mounts = append(spec.Mounts, fumehood.Mount{Host: v.Source, Container: path.Clean(v.Target), Writable: !v.ReadOnly})
		}
	}
	for _, f := range p.filesOf(svc) {
		spec.Mounts = append(spec.Mounts, fumehood.Mount{Host: f.File, Container: f.target})
	}
	spec.AllowUnsafe = spec.Compose.AllowUnsafe
	spec.Ports = append(slices.Clone(p.forward[svc.Name]), p.describe(*svc).Ports...)
	if lender := p.lender(*svc); lender.NetworkMode == "" && len(lender.Networks) > 0 && !p.onlyInternal(&lender) {
		spec.Network.Mode = fumehood.NetworkBridge
	}
	return spec
}

// fileUse is a secret or config of a service.
type fileUse struct {
	types.FileReferenceConfig
	kind, target string
	File         string // on the host; empty for others
}

// filesOf returns the secrets and configs of a service.
func (p *Project) filesOf(svc *types.ServiceConfig) (all []fileUse) {
	add := func(kind, dir string, ref types.FileReferenceConfig, file string) {
		target := cmp.Or(ref.Target, ref.Source)
		if !path.IsAbs(target) {
			target = path.Join(dir, target)
		}
		all = append(all, fileUse{ref, kind, path.Clean(target), file})
	}
	for _, s := range svc.Secrets {
		add("secrets", "/run/secrets", types.FileReferenceConfig(s), p.as.Secrets[s.Source].File)
	}
	for _, c := range svc.Configs {
		add("configs", "/", types.FileReferenceConfig(c), p.as.Configs[c.Source].File)
	}
	return all
}

// memberMounts adds the service's volumes and file systems in memory.
func (p *Project) memberMounts(svc *types.ServiceConfig, m *Member) {
	for _, v := range svc.Volumes {
		switch {
		case v.Type == types.VolumeTypeVolume && v.Source != guestVolume:
			m.Volumes = append(m.Volumes, Volume{Name: v.Source, Container: path.Clean(v.Target), Writable: !v.ReadOnly})
		case v.Type == types.VolumeTypeTmpfs:
			t := fumehood.Tmpfs{Container: path.Clean(v.Target), ReadOnly: v.ReadOnly}
			if v.Tmpfs != nil && v.Tmpfs.Size > 0 {
				t.Options = append(t.Options, fmt.Sprintf("size=%d", v.Tmpfs.Size))
			}
			if v.Tmpfs != nil && v.Tmpfs.Mode > 0 {
				t.Options = append(t.Options, fmt.Sprintf("mode=%o", v.Tmpfs.Mode))
			}
			m.Tmpfs = append(m.Tmpfs, t)
		}
	}
	for _, text := range svc.Tmpfs {
		t, _ := fumehood.ParseTmpfs(text) // checked by CheckPod or Spec.Validate
		m.Tmpfs = append(m.Tmpfs, t)
	}
	for i := range m.Tmpfs {
		m.Tmpfs[i] = boundTmpfs(m.Tmpfs[i], m.Spec.Limits.WithDefaults().Memory)
	}
}

// healthOf returns the health check of a service. Like the Engine, it takes from the image what the files do not set.
func healthOf(svc *types.ServiceConfig, image Health) *Health {
	h, file := image, svc.HealthCheck
	if file != nil {
		if file.Disable {
			return nil
		}
		if len(file.Test) > 0 {
			h.Test = file.Test
		}
		for _, d := range []struct {
			to   *time.Duration
			from *types.Duration
		}{{&h.StartPeriod, file.StartPeriod}, {&h.StartInterval, file.StartInterval}, {&h.Interval, file.Interval}, {&h.Timeout, file.Timeout}} {
			if d.from != nil && *d.from != 0 {
				*d.to = time.Duration(*d.from)
			}
		}
		if file.Retries != nil && *file.Retries > 0 {
			h.Retries = int(min(*file.Retries, 1<<30)) //nolint:gosec // see min
		}
	}
	if len(h.Test) == 0 {
		return nil
	}
	switch kind, test := h.Test[0], h.Test[1:]; kind {
	case "NONE":
		return nil
	case "CMD-SHELL":
		h.Test = []string{"/bin/sh", "-c", strings.Join(test, " ")}
	default: // CMD
		h.Test = test
	}
	h.Interval, h.Timeout, h.Retries = cmp.Or(h.Interval, 30*time.Second), cmp.Or(h.Timeout, 30*time.Second), cmp.Or(h.Retries, 3)
	return &h
}

// restartOf returns the restart policy of an applied service, and its limit. That in deploy takes precedence, as in
// Compose.
func restartOf(svc *types.ServiceConfig) (policy string, most int) {
	policy, limit, _ := strings.Cut(cmp.Or(svc.Restart, types.RestartPolicyNo), ":")
	most, _ = strconv.Atoi(limit) // compose-go rejects others
	if svc.Deploy == nil || svc.Deploy.RestartPolicy == nil {
		return policy, most
	}
	r := svc.Deploy.RestartPolicy
	most = 0
	if r.MaxAttempts != nil {
		most = int(min(*r.MaxAttempts, 1<<30)) //nolint:gosec // see min
	}
	switch r.Condition {
	case "any":
		return types.RestartPolicyAlways, most
	case "on-failure":
		return types.RestartPolicyOnFailure, most
	}
	return types.RestartPolicyNo, 0
}

// memberLimits returns the limits of an applied service. Those in deploy take precedence, as in Compose. What neither the
// user nor the files limit is 0, and Disk is the user's.
func (p *Project) memberLimits(svc *types.ServiceConfig, asked fumehood.Limits) fumehood.Limits {
	deployed := types.Resource{}
	if d := svc.Deploy; d != nil && d.Resources.Limits != nil {
		deployed = *d.Resources.Limits
	}
	limits := asked
	limits.CPUs = cmp.Or(float64(deployed.NanoCPUs), float64(svc.CPUS), asked.CPUs)
	limits.PIDs = cmp.Or(deployed.Pids, svc.PidsLimit, asked.PIDs)
	if own := p.as.Services[svc.Name]; asked.Memory != 0 || memoryLimit(&own) != 0 {
		limits.Memory = cmp.Or(int64(memoryLimit(svc)), asked.Memory)
	}
	return limits
}
