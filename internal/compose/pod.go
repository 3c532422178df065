package compose

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/image"
)

// podKeys are the keys of a service that a sandbox without an Engine honors, or that have no effect there. The values of
// some are checked.
var podKeys = map[string]bool{
	"attach": true, "build": true, "cap_add": true, "cap_drop": true, "command": true, "configs": true, "container_name": true, "cpus": true, "depends_on": true,
	"deploy.mode": true, "deploy.resources.limits": true, "deploy.restart_policy": true, "deploy.rollback_config": true,
	"deploy.update_config": true, "develop": true, "entrypoint": true, "env_file": true, "environment": true, "expose": true,
	"extra_hosts": true, "healthcheck": true, "hostname": true, "image": true, "init": true, "label_file": true, "labels": true, "logging": true,
	"mem_limit": true, "name": true, "network_mode": true, "networks": true, "pids_limit": true, "ports": true, "profiles": true,
	"pull_policy": true, "read_only": true, "restart": true, "runtime": true, "scale": true, "secrets": true, "security_opt": true, "shm_size": true, "stdin_open": true,
	"stop_grace_period": true, "stop_signal": true, "tmpfs": true, "tty": true, "user": true, "volumes": true, "working_dir": true,
}

// Runner is a provider that runs the services of a project in one network namespace, without an Engine.
type Runner struct {
	Name string // the provider's, for errors
	// Pod is set if the services are containers of a Pod on some node: it has one host name, none of this machine's
	// files, and no limit of processes.
	Pod bool
	// AllowUnenforced accepts limits that the provider cannot enforce.
	AllowUnenforced bool
	// Prebuilt accepts services with build, whose images exist.
	Prebuilt bool
}

// lacks returns the reason of a refusal: the provider does not support something.
func (r Runner) lacks(format string, a ...any) string {
	return "the " + r.Name + " provider " + fmt.Sprintf(format, a...)
}

// defaultRuntimes are the runtimes of services that isolate as the provider does without one.
var defaultRuntimes = []string{"", "runc", "io.containerd.runc.v2"}

// CheckPod returns an ErrUnsupported that names file, line and key of everything that a provider cannot honor. keep reports
// whether the project is to be kept.
func (p *Project) CheckPod(by Runner, keep bool) error {
	p.runner = by
	c := &checking{Project: p}
	notInPod := by.lacks("does not support it")
	var active []types.ServiceConfig
	for _, name := range p.order {
		svc := p.as.Services[name]
		switch {
		case svc.GetScale() == 0: // it is not started
		case svc.GetScale() > 1:
			c.refuse(of(&svc, "scale"), "%s", by.lacks("runs one container of each service"))
		default:
			c.podService(&svc)
			if keep && len(svc.Ports) > 0 {
				c.refuse(of(&svc, "ports"), "%s", by.lacks("does not publish ports of kept sandboxes"))
			}
			active = append(active, svc)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.as.Networks)) {
		n := p.as.Networks[key]
		if bool(n.External) || len(n.Ipam.Config) > 0 || n.EnableIPv6 != nil && *n.EnableIPv6 {
			c.refuse([]string{"networks", key}, "%s", notInPod)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.as.Volumes)) {
		if v := p.as.Volumes[key]; bool(v.External) || v.Driver != "" && v.Driver != "local" || len(v.DriverOpts) > 0 {
			c.refuse([]string{"volumes", key}, "%s", notInPod)
		}
	}
	if len(c.errs) == 0 {
		c.together(active)
		c.podPorts(active)
	}
	return unsupportedError(c.err())
}

// unsupportedError makes an error of a check one of the provider.
func unsupportedError(err error) error {
	if e, ok := errors.AsType[*fumehood.Error](err); ok {
		e.Class, e.Hint = fumehood.ErrUnsupported, "use the docker provider"
	}
	return err
}

// hostName matches names that can be in /etc/hosts.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// podService refuses settings of a service.
func (c *checking) podService(svc *types.ServiceConfig) {
	notInPod := c.runner.lacks("does not support it")
	services, _ := c.model["services"].(map[string]any)
	c.podKeys(svc, "", nil, services[svc.Name])
	for i := range svc.Volumes {
		c.podVolume(svc, i)
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Networks)) {
		n := svc.Networks[key]
		if n != nil && (n.Ipv4Address != "" || n.Ipv6Address != "" || n.MacAddress != "" || n.InterfaceName != "") {
			c.refuse(of(svc, "networks", key), "%s", notInPod)
		}
	}
	if svc.NetworkMode != "" && svc.NetworkMode != fumehood.NetworkNone && !strings.HasPrefix(svc.NetworkMode, types.ServicePrefix) {
		c.refuse(of(svc, "network_mode"), "%s: %s", svc.NetworkMode, c.runner.lacks("supports none, and service:NAME"))
	}
	source := c.Project.source(*svc)
	if source.Pull == image.PullAlways {
		c.refuse(of(svc, "pull_policy"), "%s", notInPod)
	}
	if kind, _, _ := hostpath.OfImage(source.Image); source.Build == nil && kind != "" { // files under test could name any file of the user
		c.refuse(of(svc, "image"), "it names a file of the host: load that with `fumehood image load`, and use the image's name")
	}
	if !slices.Contains(defaultRuntimes, svc.Runtime) {
		c.refuse(of(svc, "runtime"), "%s", notInPod)
	}
	c.podNames(svc)
	c.podRights(svc)
	for _, f := range c.filesOf(svc) {
		if f.File == "" {
			c.refuse(of(svc, f.kind), "%s: %s", f.Source, c.runner.lacks("mounts only those with a file"))
		}
	}
	for _, t := range svc.Tmpfs {
		if _, err := fumehood.ParseTmpfs(t); err != nil {
			c.refuse(of(svc, "tmpfs"), "%w", err)
		}
	}
	if c.runner.Pod {
		c.nodeService(svc, source)
	}
}

// nodeService refuses what containers of a Pod on some node cannot have.
func (c *checking) nodeService(svc *types.ServiceConfig, source image.Source) {
	const away = "the nodes do not have this machine's files"
	for i, v := range svc.Volumes {
		if v.Type == types.VolumeTypeBind {
			c.refuse(of(svc, "volumes", fmt.Sprint(i)), "%s: %s", v.Source, away)
		}
		if v.Tmpfs != nil && v.Tmpfs.Mode > 0 {
			c.refuse(of(svc, "volumes", fmt.Sprint(i)), "%s", c.runner.lacks("sets only the size of a tmpfs"))
		}
	}
	for _, f := range c.filesOf(svc) {
		c.refuse(of(svc, f.kind), "%s: %s", f.Source, away)
	}
	for _, text := range svc.Tmpfs {
		if t, _ := fumehood.ParseTmpfs(text); !OnlySize(t) {
			c.refuse(of(svc, "tmpfs"), "%s", c.runner.lacks("sets only the size of a tmpfs, and whether it is read-only"))
		}
	}
	switch {
	case source.Build != nil && !c.runner.Prebuilt:
		c.refuse(of(svc, "build"), "%s: build and push it, and name it with image", c.runner.lacks("builds no images"))
	case strings.HasPrefix(source.Image, image.BuiltinPrefix):
		c.refuse(of(svc, "image"), "%s", c.runner.lacks("builds no images"))
	}
	if svc.Hostname != "" && svc.Name != c.main {
		c.refuse(of(svc, "hostname"), "the services of a Pod have one host name, that of %s", c.main)
	}
	if svc.PidsLimit > 0 && !c.runner.AllowUnenforced {
		c.refuse(of(svc, "pids_limit"), "%s: the nodes' podPidsLimit applies", c.runner.lacks("cannot limit processes"))
	}
}

// OnlySize reports whether a tmpfs has no option of its file system but the size, in bytes.
func OnlySize(t fumehood.Tmpfs) bool {
	for _, option := range t.Options {
		if size, ok := strings.CutPrefix(option, "size="); !ok || strings.HasSuffix(size, "%") {
			return false
		}
	}
	return true
}

// podNames refuses names that cannot be in /etc/hosts.
func (c *checking) podNames(svc *types.ServiceConfig) {
	for _, name := range namesOf(svc) {
		if len(name) > maxHostname || !hostName.MatchString(name) {
			c.refuse(of(svc), "%q cannot be a host name: letters, digits, dots, hyphens and underscores, at most %d", name, maxHostname)
		}
	}
	for name, addresses := range svc.ExtraHosts {
		for _, a := range addresses {
			if _, err := netip.ParseAddr(strings.Trim(a, "[]")); err != nil || !hostName.MatchString(name) {
				c.refuse(of(svc, "extra_hosts"), "%s: %s: %s", name, a, c.runner.lacks("supports addresses only"))
			}
		}
	}
}

// podRights refuses rights that no service has here.
func (c *checking) podRights(svc *types.ServiceConfig) {
	for _, name := range svc.CapAdd {
		if !slices.Contains(serviceCapabilities, capability(name)) {
			c.refuse(of(svc, "cap_add"), "%s: %s", name, c.runner.lacks("gives only %s", strings.Join(serviceCapabilities, ", ")))
		}
	}
	for _, opt := range svc.SecurityOpt {
		if name, value, _ := strings.Cut(strings.Replace(opt, ":", "=", 1), "="); !isBuiltinSeccomp(opt) && (name != "no-new-privileges" || value != "" && value != "true") {
			c.refuse(of(svc, "security_opt"), "%s: %s", opt, c.runner.lacks("does not support it"))
		}
	}
}

// podVolume refuses settings of a mount.
func (c *checking) podVolume(svc *types.ServiceConfig, i int) {
	at, v := of(svc, "volumes", fmt.Sprint(i)), svc.Volumes[i]
	switch {
	case v.Type == types.VolumeTypeTmpfs:
	case v.Type != types.VolumeTypeBind && v.Type != types.VolumeTypeVolume:
		c.refuse(at, "%s: %s", v.Type, c.runner.lacks("mounts volumes, paths of the host, and tmpfs"))
	case v.Bind != nil && (v.Bind.Propagation != "" || v.Bind.Recursive != "" || v.Bind.SELinux != ""), v.Volume != nil && v.Volume.Subpath != "":
		c.refuse(at, "%s", c.runner.lacks("does not support it"))
	}
}

// maxHostname is the longest host name of Linux in bytes. The service's name is one, so that the service finds itself.
const maxHostname = 64

// podKeys refuses keys that are not in the list and have a value. prefix is the path of value below the service.
func (c *checking) podKeys(svc *types.ServiceConfig, prefix string, at []string, value any) {
	keys, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		here, place := prefix+key, append(slices.Clip(at), key)
		parent := func(allowed string) bool { return strings.HasPrefix(allowed, here+".") }
		switch {
		case podKeys[here] || strings.HasPrefix(key, "x-") || key == "#extensions" || empty(keys[key]):
		case slices.ContainsFunc(slices.Collect(maps.Keys(podKeys)), parent):
			c.podKeys(svc, here+".", place, keys[key])
		default:
			c.refuse(of(svc, place...), "%s", c.runner.lacks("does not support it"))
		}
	}
}

// lender returns the service whose network a service shares, which may be its own.
func (p *Project) lender(svc types.ServiceConfig) types.ServiceConfig {
	for range p.order { // Compose rejects cycles of sharing services
		other, ok := strings.CutPrefix(svc.NetworkMode, types.ServicePrefix)
		if !ok {
			break
		}
		svc = p.as.Services[other]
	}
	return svc
}

// together refuses services that would reach more in one network namespace than in the networks of the files.
func (c *checking) together(all []types.ServiceConfig) {
	const shared = "without an Engine all services share one network"
	for i, own := range all {
		a := c.lender(own)
		if len(all) > 1 && a.NetworkMode == fumehood.NetworkNone {
			c.refuse(of(&own, "network_mode"), "none: "+shared)
			continue
		}
		for _, other := range all[:i] {
			b := c.lender(other)
			key := "networks"
			if len(c.as.Services[own.Name].Networks) == 0 {
				key = "network_mode"
			}
			switch {
			case b.NetworkMode == fumehood.NetworkNone:
			case a.Name != b.Name && !slices.ContainsFunc(slices.Collect(maps.Keys(a.Networks)), func(n string) bool { _, ok := b.Networks[n]; return ok }):
				c.refuse(of(&own, key), "it has no network in common with %s, but "+shared, other.Name)
			case c.onlyInternal(&a) != c.onlyInternal(&b):
				c.refuse(of(&own, key), "of it and %s only one reaches the internet, but "+shared, other.Name)
			default:
				continue
			}
			break
		}
	}
}

// podPorts refuses two services that declare the same port.
func (c *checking) podPorts(all []types.ServiceConfig) {
	taken := map[string]string{}
	for _, svc := range all {
		declare := func(key, port, protocol string) {
			first, last, _ := strings.Cut(port, "-")
			from, _ := strconv.Atoi(first) // compose-go rejects others
			to, _ := strconv.Atoi(cmp.Or(last, first))
			for n := from; n <= min(to, 1<<16); n++ {
				port := fmt.Sprintf("%d/%s", n, cmp.Or(protocol, fumehood.ProtocolTCP))
				if other := taken[port]; other != "" && other != svc.Name {
					c.refuse(of(&svc, key), "%s is a port of %s too, but without an Engine all services share one network", port, other)
					return
				}
				taken[port] = svc.Name
			}
		}
		for _, p := range svc.Ports {
			declare("ports", fmt.Sprint(p.Target), p.Protocol)
		}
		for _, text := range svc.Expose {
			port, protocol, _ := strings.Cut(text, "/")
			declare("expose", port, protocol)
		}
	}
}
