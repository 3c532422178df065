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

// checking looks for what a sandbox cannot honour, and for what breaks its isolation. It is pure.
type checking struct {
	*Project
	dir   string // the project's folder, with no link in it
	allow bool   // what breaks the isolation is noted in place of refused

	errs     []error
	unsafely bool // some of errs could be allowed
}

// check tells all that is wrong at once.
func (c *checking) check() error {
	for _, name := range c.order {
		svc := c.as.Services[name]
		c.service(&svc)
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Networks)) {
		c.network(key, c.as.Networks[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Volumes)) {
		c.volume(key, c.as.Volumes[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Secrets)) {
		c.file([]string{"secrets", key}, types.FileObjectConfig(c.as.Secrets[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Configs)) {
		c.file([]string{"configs", key}, types.FileObjectConfig(c.as.Configs[key]))
	}
	if len(c.errs) == 0 {
		return nil
	}
	e := &fumehood.Error{Op: opLoad, Class: fumehood.ErrConfig, Err: errors.Join(c.errs...)}
	if c.unsafely {
		e.Hint = "remove what breaks the isolation, or allow it with AllowUnsafe, --allow-unsafe"
	}
	return e
}

// refuse is for what a sandbox cannot honour.
func (c *checking) refuse(keys []string, format string, a ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s: %w", c.places.find(keys), strings.Join(keys, "."), fmt.Errorf(format, a...)))
}

// unsafe is for what breaks the isolation.
func (c *checking) unsafe(keys []string, value, why string) {
	if c.allow {
		note := Change{Key: strings.Join(keys, "."), To: value, Why: why, Unsafe: true}
		if keys[0] == "services" {
			note.Service, note.Key = keys[1], strings.Join(keys[2:], ".")
		}
		c.notes = append(c.notes, note)
		return
	}
	c.unsafely = true
	if value != "" {
		value += ": "
	}
	c.refuse(keys, "%sthis is not safe: %s", value, why)
}

// of is a key of a service.
func of(svc *types.ServiceConfig, keys ...string) []string {
	return append([]string{"services", svc.Name}, keys...)
}

// rule is about a key of services: what tells its value where the rule applies, else "".
type rule struct {
	key  string
	what func(*types.ServiceConfig) string
	why  string
}

// unsafeRules are keys that break the isolation.
var unsafeRules = []rule{
	{"privileged", yes(func(s *types.ServiceConfig) bool { return s.Privileged }), "it has all rights of the host's root"},
	{"pid", foreign(func(s *types.ServiceConfig) string { return s.Pid }), "it sees and signals processes that are not the sandbox's"},
	{"ipc", foreign(func(s *types.ServiceConfig) string { return s.Ipc }), "it shares memory with processes that are not the sandbox's"},
	{"uts", foreign(func(s *types.ServiceConfig) string { return s.Uts }), "it has the host's name"},
	{"cgroup", foreign(func(s *types.ServiceConfig) string { return s.Cgroup }), "it sees the host's control groups"},
	{"userns_mode", foreign(func(s *types.ServiceConfig) string { return s.UserNSMode }), "its root is the host's"},
	{"network_mode", foreignNetwork, "its network is not the sandbox's"},
	{"cgroup_parent", func(s *types.ServiceConfig) string { return s.CgroupParent }, "limits of that group are not the sandbox's"},
	{"device_cgroup_rules", func(s *types.ServiceConfig) string { return strings.Join(s.DeviceCgroupRules, ", ") }, "it may use devices of the host"},
	{"external_links", func(s *types.ServiceConfig) string { return strings.Join(s.ExternalLinks, ", ") }, "these containers are not the sandbox's"},
	{"use_api_socket", yes(func(s *types.ServiceConfig) bool { return s.UseAPISocket }), "who has the Docker socket has the host, and it gets the registries' passwords"},
	{"oom_kill_disable", yes(func(s *types.ServiceConfig) bool { return s.OomKillDisable }), "at its memory limit it hangs, and is not ended"},
	{"oom_score_adj", func(s *types.ServiceConfig) string {
		if s.OomScoreAdj < 0 {
			return fmt.Sprint(s.OomScoreAdj)
		}
		return ""
	}, "when memory runs out, the host's programs are ended before it"},
	{"runtime", func(s *types.ServiceConfig) string {
		if slices.Contains(knownRuntimes, s.Runtime) {
			return ""
		}
		return s.Runtime
	}, "what this runtime gives to containers is not known"},
}

// knownRuntimes isolate no less than the Engine's own.
var knownRuntimes = []string{"", "runc", "io.containerd.runc.v2", "crun", "runsc", "io.containerd.runsc.v1", "kata", "kata-runtime", "io.containerd.kata.v2"}

func yes(set func(*types.ServiceConfig) bool) func(*types.ServiceConfig) string {
	return func(s *types.ServiceConfig) string {
		if set(s) {
			return "true"
		}
		return ""
	}
}

// foreign tells a namespace of the host or of a container that is not the project's.
func foreign(mode func(*types.ServiceConfig) string) func(*types.ServiceConfig) string {
	return func(s *types.ServiceConfig) string {
		if m := mode(s); m == "host" || strings.HasPrefix(m, types.ContainerPrefix) {
			return m
		}
		return ""
	}
}

func foreignNetwork(s *types.ServiceConfig) string {
	switch m := s.NetworkMode; {
	case m == "", m == "none", m == "bridge", m == "default", strings.HasPrefix(m, types.ServicePrefix):
		return ""
	default:
		return m
	}
}

// unsupportedRules are keys that neither the Engine nor we could honour.
var unsupportedRules = []rule{
	{"provider", yes(func(s *types.ServiceConfig) bool { return s.Provider != nil }), "a provider is a program on the host, which a sandbox does not run"},
	{"models", yes(func(s *types.ServiceConfig) bool { return len(s.Models) > 0 }), "there is no model runner for sandboxes"},
	{"credential_spec", yes(func(s *types.ServiceConfig) bool { return s.CredentialSpec != nil }), "it is for Windows containers"},
	{"isolation", func(s *types.ServiceConfig) string {
		if s.Isolation == "default" {
			return ""
		}
		return s.Isolation
	}, "it is for Windows containers"},
	{"pre_start", yes(func(s *types.ServiceConfig) bool { return len(s.PreStart) > 0 }), "its containers would not be the sandbox's; use a one-shot service and depends_on"},
	{"pre_stop", yes(func(s *types.ServiceConfig) bool { return len(s.PreStop) > 0 }), "a sandbox is removed, not stopped"},
}

// maxScale bounds the containers of one service: a daemon has no addresses for many more on one network.
const maxScale = 1000

func (c *checking) service(svc *types.ServiceConfig) {
	for _, r := range unsupportedRules {
		if r.what(svc) != "" {
			c.refuse(of(svc, r.key), "cannot be honoured: %s", r.why)
		}
	}
	for _, r := range unsafeRules {
		if value := r.what(svc); value != "" {
			c.unsafe(of(svc, r.key), value, r.why)
		}
	}
	if _, err := c.flag(svc.Name, "x-local"); err != nil {
		c.refuse(of(svc, "x-local"), "wanted true or false")
	}
	for i, h := range svc.PostStart {
		if h.Privileged {
			c.unsafe(of(svc, "post_start", fmt.Sprint(i), "privileged"), "true", "it has all rights of the host's root")
		}
	}
	if n := svc.GetScale(); n > maxScale {
		c.refuse(of(svc, "scale"), "%d containers of one service are too many: %d at most", n, maxScale)
	}
	c.capabilities(svc)
	c.securityOpts(svc)
	c.devices(svc)
	c.deploy(svc)
	c.mounts(svc)
	c.labels(of(svc, "labels"), svc.Labels)
	c.files(svc)
	c.build(svc)
	if svc.Logging != nil && !slices.Contains([]string{"", "json-file", "local", "none"}, svc.Logging.Driver) {
		c.unsafe(of(svc, "logging", "driver"), svc.Logging.Driver, "the Engine sends what the service prints to somewhere else")
	}
	if c.internalFor(svc) {
		c.onInternal(svc)
	}
}

// internalFor says whether a service has only internal networks, of its own or another service's.
func (c *checking) internalFor(svc *types.ServiceConfig) bool {
	for range c.order { // Compose refuses services that share in a circle
		other, ok := strings.CutPrefix(svc.NetworkMode, types.ServicePrefix)
		if !ok {
			break
		}
		lender := c.as.Services[other]
		svc = &lender
	}
	return c.onlyInternal(svc)
}

// onlyInternal says whether a service has networks and all of them are internal.
func (p *Project) onlyInternal(svc *types.ServiceConfig) bool {
	for key := range svc.Networks {
		if n := p.as.Networks[key]; bool(n.External) || !p.internal && !n.Internal {
			return false
		}
	}
	return len(svc.Networks) > 0
}

// onInternal is about what would reach the host's end of an internal network. The host's bridge always has
// a link-local IPv6 address there; the Engine only keeps containers from having one themselves.
func (c *checking) onInternal(svc *types.ServiceConfig) {
	const why = "with it the host can be reached over an internal network"
	for _, key := range slices.Sorted(maps.Keys(svc.Sysctls)) {
		if strings.HasPrefix(strings.ReplaceAll(key, "/", "."), "net.ipv6.") {
			c.unsafe(of(svc, "sysctls", key), svc.Sysctls[key], why)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Networks)) {
		if n := svc.Networks[key]; n != nil && len(n.DriverOpts) > 0 {
			c.unsafe(of(svc, "networks", key, "driver_opts"), "", why)
		}
	}
	for _, name := range svc.CapAdd {
		if capability(name) == "NET_RAW" {
			c.unsafe(of(svc, "cap_add"), "NET_RAW", why)
		}
	}
	for _, port := range svc.Ports {
		if port.Protocol != fumehood.ProtocolTCP && port.Protocol != fumehood.ProtocolUDP {
			c.refuse(of(svc, "ports"), "port %d/%s cannot be published: the service is on internal networks only, from which TCP and UDP are forwarded", port.Target, port.Protocol)
		}
	}
}

// capability is a capability's name as Linux has it, without CAP_.
func capability(name string) string {
	return strings.TrimPrefix(strings.ToUpper(name), "CAP_")
}

// harmless are the capabilities that a service may ask for: those that the Engine gives by default, and
// those that reach no further than the container since Linux 4.8.
var harmless = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW", "SETFCAP",
	"SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_PTRACE", "IPC_LOCK",
}

func (c *checking) capabilities(svc *types.ServiceConfig) {
	for _, name := range svc.CapAdd {
		if !slices.Contains(harmless, capability(name)) {
			c.unsafe(of(svc, "cap_add"), name, "this capability reaches beyond the container")
		}
	}
}

// securityOpts lets pass what does not weaken the container.
func (c *checking) securityOpts(svc *types.ServiceConfig) {
	for _, opt := range svc.SecurityOpt {
		name, value, _ := strings.Cut(strings.Replace(opt, ":", "=", 1), "=")
		switch {
		case name == "no-new-privileges", name == "seccomp" && value == "builtin", name == "apparmor" && value == "docker-default":
		default:
			c.unsafe(of(svc, "security_opt"), opt, "it loosens what the kernel refuses to containers")
		}
	}
}

func (c *checking) devices(svc *types.ServiceConfig) {
	const why = "it has a device of the host"
	for _, d := range svc.Devices {
		c.unsafe(of(svc, "devices"), d.Source, why)
	}
	if len(svc.Gpus) > 0 {
		c.unsafe(of(svc, "gpus"), "", why)
	}
	if d := svc.Deploy; d != nil && d.Resources.Reservations != nil && len(d.Resources.Reservations.Devices) > 0 {
		c.unsafe(of(svc, "deploy", "resources", "reservations", "devices"), "", why)
	}
}

// deploy refuses what is for clusters. What is about updates has nothing to apply to.
func (c *checking) deploy(svc *types.ServiceConfig) {
	d := svc.Deploy
	if d == nil {
		return
	}
	const why = "cannot be honoured: it is for clusters"
	if d.Mode != "" && d.Mode != "replicated" && d.Mode != "global" {
		c.refuse(of(svc, "deploy", "mode"), why)
	}
	if len(d.Labels) > 0 {
		c.refuse(of(svc, "deploy", "labels"), why+"; use labels of the service")
	}
	if p := d.Placement; len(p.Constraints) > 0 || len(p.Preferences) > 0 || p.MaxReplicas > 0 {
		c.refuse(of(svc, "deploy", "placement"), why)
	}
	if d.EndpointMode != "" && d.EndpointMode != "dnsrr" {
		c.refuse(of(svc, "deploy", "endpoint_mode"), why+"; a service's name has the addresses of all its containers")
	}
	if r := d.Resources.Reservations; r != nil {
		if r.NanoCPUs != 0 {
			c.refuse(of(svc, "deploy", "resources", "reservations", "cpus"), why+"; cpu_shares gives a service precedence")
		}
		if len(r.GenericResources) > 0 {
			c.refuse(of(svc, "deploy", "resources", "reservations", "generic_resources"), why)
		}
	}
	if p := d.RestartPolicy; p != nil && (p.Delay != nil || p.Window != nil) {
		c.refuse(of(svc, "deploy", "restart_policy"), "delay and window cannot be honoured: the Engine has neither")
	}
}

// labels refuses those by which objects are found again.
func (c *checking) labels(keys []string, labels types.Labels) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(key, "fumehood.") || strings.HasPrefix(key, "com.docker.compose.") {
			c.refuse(append(keys, key), "labels of this name are not for projects")
		}
	}
}

func (c *checking) build(svc *types.ServiceConfig) {
	b := svc.Build
	if b == nil {
		return
	}
	if b.Privileged || len(b.Entitlements) > 0 {
		c.unsafe(of(svc, "build", "entitlements"), strings.Join(b.Entitlements, ", "), "the build has rights on the host")
	}
	if b.Network == "host" || strings.HasPrefix(b.Network, types.ContainerPrefix) {
		c.unsafe(of(svc, "build", "network"), b.Network, "the build's network is not the sandbox's")
	}
	if len(b.SSH) > 0 {
		c.unsafe(of(svc, "build", "ssh"), "", "the build uses keys of the host's")
	}
	c.labels(of(svc, "build", "labels"), b.Labels)
}

func (c *checking) network(key string, n types.NetworkConfig) {
	at := func(keys ...string) []string { return append([]string{"networks", key}, keys...) }
	if bool(n.External) {
		c.unsafe(at("external"), n.Name, "other containers than the sandbox's are in it, and perhaps the internet")
		return
	}
	if n.Driver != "" && n.Driver != "bridge" && n.Driver != "default" {
		c.unsafe(at("driver"), n.Driver, "networks of this driver reach beyond the host")
	}
	if d := n.Ipam.Driver; d != "" && d != "default" {
		c.unsafe(at("ipam", "driver"), d, "what gives addresses is not the Engine")
	}
	for _, opt := range slices.Sorted(maps.Keys(n.DriverOpts)) {
		switch opt {
		case "com.docker.network.driver.mtu", "com.docker.network.bridge.enable_icc", inhibitIPv4:
		default:
			c.unsafe(at("driver_opts", opt), n.DriverOpts[opt], "it changes how the host treats the network")
		}
	}
	if n.EnableIPv6 != nil && *n.EnableIPv6 && (c.internal || n.Internal) {
		c.unsafe(at("enable_ipv6"), "true", "the host has an IPv6 address on it that can be reached, although it is internal")
	}
	c.labels(at("labels"), n.Labels)
}
