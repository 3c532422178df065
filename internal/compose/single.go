package compose

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

// singleKeys are the keys of a service that a sandbox without an Engine honors, or that have no effect on a service whose
// main process is the guest. The values of some are checked.
var singleKeys = map[string]bool{
	"attach": true, "build": true, "command": true, "container_name": true, "cpus": true, "deploy.resources.limits": true,
	"deploy.restart_policy": true, "entrypoint": true, "env_file": true, "environment": true, "expose": true,
	"image": true, "init": true, "label_file": true, "labels": true, "logging": true, "mem_limit": true, "name": true,
	"network_mode": true, "networks": true, "pids_limit": true, "ports": true, "profiles": true, "pull_policy": true, "restart": true,
	"scale": true, "stdin_open": true, "stop_grace_period": true, "stop_signal": true, "tty": true, "user": true, "volumes": true,
	"working_dir": true,
}

const notSingle = "the native provider does not support it"

// CheckSingle returns an ErrUnsupported that names file, line and key of everything that a sandbox of one service,
// without an Engine and its networks and volumes, cannot honor.
func (p *Project) CheckSingle() error {
	c := &checking{Project: p}
	for _, name := range p.order {
		svc := p.as.Services[name]
		switch {
		case svc.GetScale() == 0: // it is not started
		case svc.GetScale() > 1:
			c.refuse(of(&svc, "scale"), "the native provider runs one service with one container")
		case name != p.main:
			c.refuse(of(&svc), "the native provider runs one service, which is %s", p.main)
		default:
			c.single(&svc)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.as.Networks)) {
		n := p.as.Networks[key]
		if bool(n.External) || len(n.Ipam.Config) > 0 || n.EnableIPv6 != nil && *n.EnableIPv6 {
			c.refuse([]string{"networks", key}, notSingle)
		}
	}
	return unsupported(c.err())
}

// unsupported makes an error of a check one of the provider.
func unsupported(err error) error {
	if e, ok := errors.AsType[*fumehood.Error](err); ok {
		e.Class, e.Hint = fumehood.ErrUnsupported, "use the docker provider"
	}
	return err
}

// single refuses settings of the only service.
func (c *checking) single(svc *types.ServiceConfig) {
	services, _ := c.model["services"].(map[string]any)
	c.singleKeys(svc, "", nil, services[svc.Name])
	for i, v := range svc.Volumes {
		at := of(svc, "volumes", fmt.Sprint(i))
		switch {
		case v.Type != types.VolumeTypeBind:
			c.refuse(at, "the native provider mounts only paths of the host")
		case v.Bind != nil && (v.Bind.Propagation != "" || v.Bind.Recursive != "" || v.Bind.SELinux != ""):
			c.refuse(at, notSingle)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(svc.Environment)) {
		if svc.Environment[name] == nil {
			c.refuse(of(svc, "environment"), "%s has no value: the native provider cannot remove a variable of an image", name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Networks)) {
		n := svc.Networks[key]
		if n != nil && (n.Ipv4Address != "" || n.Ipv6Address != "" || n.MacAddress != "" || n.InterfaceName != "" || len(n.Aliases) > 0) {
			c.refuse(of(svc, "networks", key), notSingle)
		}
	}
	if svc.NetworkMode != "" && svc.NetworkMode != fumehood.NetworkNone {
		c.refuse(of(svc, "network_mode"), "%s: the native provider supports none", svc.NetworkMode)
	}
	if c.Project.source(*svc).Pull == PullAlways {
		c.refuse(of(svc, "pull_policy"), notSingle)
	}
	if len(svc.Name) > maxHostname {
		c.refuse(of(svc), "%d bytes are too long for a host name: at most %d", len(svc.Name), maxHostname)
	}
}

// maxHostname is the longest host name of Linux in bytes. The service's name is one, so that the service finds itself.
const maxHostname = 64

// singleKeys refuses keys that are not in the list and have a value. prefix is the path of value below the service.
func (c *checking) singleKeys(svc *types.ServiceConfig, prefix string, at []string, value any) {
	keys, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		here, place := prefix+key, append(slices.Clip(at), key)
		parent := func(allowed string) bool { return strings.HasPrefix(allowed, here+".") }
		switch {
		case singleKeys[here] || strings.HasPrefix(key, "x-") || key == "#extensions" || empty(keys[key]):
		case slices.ContainsFunc(slices.Collect(maps.Keys(singleKeys)), parent):
			c.singleKeys(svc, here+".", place, keys[key])
		default:
			c.refuse(of(svc, place...), notSingle)
		}
	}
}

// Unsupported returns the ErrUnsupported for a key of the only service.
func (p *Project) Unsupported(key, why string) error {
	c := &checking{Project: p}
	svc := p.as.Services[p.main]
	c.refuse(of(&svc, key), "%s", why)
	return unsupported(c.err())
}

// SingleSpec returns the spec of the project's sandbox: that of the caller with the service's settings. Its Compose
// names the service. The changes include the settings that break the isolation and were allowed. CheckSingle must have
// accepted the project. The error is an ErrUnsupported if the service does not only wait.
func (p *Project) SingleSpec(spec fumehood.Spec, image Image) (fumehood.Spec, []Change, error) {
	changes := p.Apply(Policy{Volume: guestVolume, Serve: true, Limits: spec.Limits, Images: map[string]Image{p.main: image}})
	svc := p.project.Services[p.main]
	if !p.serve[p.main] {
		return spec, nil, p.Unsupported("command", "the native provider runs only services that wait for commands, such as `sleep infinity`")
	}
	project := *spec.Compose
	project.Service = p.main
	spec.Compose = &project
	spec.User, spec.Dir, spec.Env = svc.User, svc.WorkingDir, map[string]string{}
	for name, value := range svc.Environment {
		if value != nil {
			spec.Env[name] = *value
		}
	}
	spec.Limits = p.singleLimits(&svc, spec.Limits)
	for _, v := range svc.Volumes {
		if v.Type == types.VolumeTypeBind {
			spec.Mounts = append(spec.Mounts, fumehood.Mount{Host: v.Source, Container: path.Clean(v.Target), Writable: !v.ReadOnly})
		}
	}
	spec.AllowUnsafe = project.AllowUnsafe
	spec.Ports = append(slices.Clone(p.forward[p.main]), p.describe(svc).Ports...)
	if svc.NetworkMode == "" && len(svc.Networks) > 0 && !p.onlyInternal(&svc) {
		spec.Network.Mode = fumehood.NetworkBridge
	}
	return spec, changes, nil
}

// singleLimits returns the limits of an applied service. Those in deploy take precedence, as in Compose. What neither the
// user nor the files limit is 0, and Disk is the user's.
func (p *Project) singleLimits(svc *types.ServiceConfig, asked fumehood.Limits) fumehood.Limits {
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
