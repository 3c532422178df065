package compose

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
)

// checking collects settings that a sandbox cannot honor, or that break its isolation. It is pure.
type checking struct {
	*Project
	allow   bool // record settings that break the isolation as notes instead of rejecting them
	offline bool // reject services that reach something outside the project's networks

	errs     []refusal
	unsafely bool            // some of errs could be allowed as unsafe
	outsides bool            // some of errs could be allowed as paths that are only read
	taken    map[string]bool // mount points in use, as "service path"
}

// check checks the whole project. Its error contains everything that is wrong.
func (c *checking) check() error {
	c.keys("", nil, c.model)
	for _, name := range c.order {
		svc := c.as.Services[name]
		c.service(&svc)
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Networks)) {
		c.network(key, c.as.Networks[key])
	}
	c.pools(c.pool)
	for _, key := range slices.Sorted(maps.Keys(c.as.Volumes)) {
		c.volume(key, c.as.Volumes[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Secrets)) {
		c.file([]string{"secrets", key}, types.FileObjectConfig(c.as.Secrets[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(c.as.Configs)) {
		c.file([]string{"configs", key}, types.FileObjectConfig(c.as.Configs[key]))
	}
	return c.err()
}

// refusal is an error with its place in the files.
type refusal struct {
	at  place
	err error
}

// err joins the errors into one, or returns nil. They are sorted by file, in the order of reading, and by line.
func (c *checking) err() error {
	if len(c.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(c.errs, func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.at.order, b.at.order), cmp.Compare(a.at.line, b.at.line))
	})
	var errs []error
	for _, r := range c.errs {
		errs = append(errs, r.err)
	}
	e := &fumehood.Error{Op: opLoad, Class: fumehood.ErrFile, Err: errors.Join(errs...)}
	switch {
	case c.unsafely && c.outsides:
		e.Hint = "remove what breaks the isolation, or allow it (--allow-read for what is only outside of the project's folder, else --allow-unsafe)"
	case c.unsafely:
		e.Hint = "remove what breaks the isolation, or allow it (--allow-unsafe)"
	case c.outsides:
		e.Hint = "use paths in the project's folder, or allow others (--allow-read)"
	}
	return e
}

// refuse records an error about nested keys.
func (c *checking) refuse(keys []string, format string, a ...any) {
	at := c.places.find(keys)
	c.errs = append(c.errs, refusal{at, fmt.Errorf("%s: %s: %w", at, strings.Join(keys, "."), fmt.Errorf(format, a...))})
}

// unsafe records a value that breaks the isolation: as a note if that is allowed, otherwise as an error.
func (c *checking) unsafe(keys []string, value, why string) {
	c.unless(&c.unsafely, keys, value, why)
}

// outside records a path outside of the project's folder that is only read. Allowing that path makes it safe.
func (c *checking) outside(keys []string, path, why string) {
	c.unless(&c.outsides, keys, path, why)
}

// unless records an unsafe value. refused is set if that is not allowed.
func (c *checking) unless(refused *bool, keys []string, value, why string) {
	if c.allow {
		note := Change{Key: strings.Join(keys, "."), To: value, Reason: why, Unsafe: true}
		if keys[0] == "services" {
			note.Service, note.Key = keys[1], strings.Join(keys[2:], ".")
		}
		c.notes = append(c.notes, note)
		return
	}
	*refused = true
	if value != "" {
		value += ": "
	}
	c.refuse(keys, "%sthis is not safe: %s", value, why)
}

// of returns the path of a key of a service.
func of(svc *types.ServiceConfig, keys ...string) []string {
	return append([]string{"services", svc.Name}, keys...)
}

// rule checks the value of a key of a service.
type rule struct {
	key    string
	breach func(*types.ServiceConfig) string // returns the value if it breaks the isolation, else ""
	why    string
}

// rules are allow-lists of values.
var rules = []rule{
	{"pid", other(func(s *types.ServiceConfig) string { return s.Pid }), "it sees and signals processes that are not the sandbox's"},
	{"ipc", other(func(s *types.ServiceConfig) string { return s.Ipc }, "none", "private", "shareable"), "it shares memory with processes that are not the sandbox's"},
	{"uts", other(func(s *types.ServiceConfig) string { return s.Uts }), "it has the host's name"},
	{"cgroup", other(func(s *types.ServiceConfig) string { return s.Cgroup }, "private"), "it sees the host's control groups"},
	{"userns_mode", other(func(s *types.ServiceConfig) string { return s.UserNSMode }), "its root is the host's"},
	{"network_mode", other(func(s *types.ServiceConfig) string { return s.NetworkMode }, "none", "bridge", "default"), "its network is not the sandbox's"},
	{"runtime", other(func(s *types.ServiceConfig) string { return s.Runtime }, knownRuntimes...), "what this runtime gives to containers is not known"},
	{"oom_score_adj", func(s *types.ServiceConfig) string {
		if s.OomScoreAdj < 0 {
			return fmt.Sprint(s.OomScoreAdj)
		}
		return ""
	}, "when memory runs out, the host's programs are killed before it"},
	{"memswap_limit", func(s *types.ServiceConfig) string {
		if s.MemSwapLimit < 0 {
			return fmt.Sprint(int64(s.MemSwapLimit))
		}
		return ""
	}, "it can take all of the host's swap"},
	{"pids_limit", func(s *types.ServiceConfig) string {
		if noPIDsLimit(s.PidsLimit) {
			return fmt.Sprint(s.PidsLimit)
		}
		return ""
	}, "it can start processes until the host has none left"},
}

// noPIDsLimit reports whether a limit of processes may have no effect: by default, a machine with up to 32 processors
// has 2^15 PIDs (PID_MAX_DEFAULT of Linux).
func noPIDsLimit(n int64) bool { return n < 0 || n >= 1<<15 }

// other returns a rule function that rejects all values except "", the allowed ones, and services of the project.
func other(mode func(*types.ServiceConfig) string, allowed ...string) func(*types.ServiceConfig) string {
	return func(s *types.ServiceConfig) string {
		m := mode(s)
		if m == "" || slices.Contains(allowed, m) || strings.HasPrefix(m, types.ServicePrefix) {
			return ""
		}
		return m
	}
}

// maxScale is the maximum number of containers of one service. A network of the daemon has addresses for few more.
const maxScale = 1000

func (c *checking) service(svc *types.ServiceConfig) {
	for _, r := range rules {
		if value := r.breach(svc); value != "" {
			c.unsafe(of(svc, r.key), value, r.why)
		}
	}
	c.image(svc.Name, svc.Image)
	for _, key := range []string{"x-default", "x-local"} {
		if _, valid := c.flag(svc.Name, key); !valid {
			c.refuse(of(svc, key), "wanted true or false")
		}
	}
	if svc.GetScale() > 0 {
		c.source(svc)
	}
	if svc.Isolation != "" && svc.Isolation != "default" {
		c.refuse(of(svc, "isolation"), "cannot be honored: it is for Windows containers")
	}
	for key, words := range map[string][]string{
		"dns": svc.DNS, "dns_search": svc.DNSSearch, "dns_opt": svc.DNSOpts, "hostname": {svc.Hostname}, "domainname": {svc.DomainName},
		"extra_hosts": svc.ExtraHosts.AsList(":"),
	} {
		for _, word := range words {
			if strings.ContainsFunc(word, unicode.IsControl) {
				c.refuse(of(svc, key), "%q has a control character, which could add a line to a file that the Engine writes", word)
			}
		}
	}
	if n := svc.GetScale(); n > maxScale {
		c.refuse(of(svc, "scale"), "%d containers of one service are too many: %d at most", n, maxScale)
	}
	c.ports(svc)
	c.capabilities(svc)
	c.securityOpts(svc)
	c.kernel(svc)
	c.sizes(svc)
	c.deploy(svc)
	c.mounts(svc)
	c.labels(of(svc, "labels"), svc.Labels)
	c.files(svc)
	c.build(svc)
	c.logging(svc)
	if c.internalFor(svc) {
		c.onInternal(svc)
	} else if c.offline && c.lender(*svc).NetworkMode != fumehood.NetworkNone {
		c.outward(svc)
	}
	if m := svc.NetworkMode; m == "bridge" || m == "default" {
		c.notes = append(c.notes, Change{
			Service: svc.Name, Key: "network_mode", To: m, Unsafe: true, Reason: "the Engine's own network has a way out, and other containers in it",
		})
	}
}

// internalFor reports whether a service uses only internal networks, its own or those of the service whose network it
// shares.
func (c *checking) internalFor(svc *types.ServiceConfig) bool {
	lender := c.lender(*svc)
	return c.onlyInternal(&lender)
}

// onlyInternal reports whether a service has networks and all of them are internal.
func (p *Project) onlyInternal(svc *types.ServiceConfig) bool {
	for key := range svc.Networks {
		if n := p.as.Networks[key]; bool(n.External) || !p.internal && !n.Internal {
			return false
		}
	}
	return len(svc.Networks) > 0
}

// outward rejects the network of a service that must be offline. It names the key that gives the service a way out.
func (c *checking) outward(svc *types.ServiceConfig) {
	const why = "the project must be offline, and with it the service %s reaches what is outside"
	switch lender := c.lender(*svc); {
	case lender.NetworkMode != "":
		c.refuse(of(svc, "network_mode"), "%s: "+why, svc.NetworkMode, svc.Name)
	case !c.internal && c.settings.egress != "":
		c.refuse([]string{settingsKey, "egress"}, "%s: "+why, c.settings.egress, svc.Name)
	default:
		c.refuse(of(svc, "networks"), "%s: "+why, strings.Join(slices.Sorted(maps.Keys(lender.Networks)), ", "), svc.Name)
	}
}

// onInternal rejects settings that let a service on internal networks reach the host's end of them. The host's bridge
// always has a link-local IPv6 address there; the Engine only keeps containers from having one themselves.
func (c *checking) onInternal(svc *types.ServiceConfig) {
	const why = "with it the host can be reached over an internal network"
	for _, server := range svc.DNS {
		if server != noResolver {
			c.unsafe(of(svc, "dns"), server, "some Engines ask this server over the host's network, although the service has only internal ones")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Sysctls)) {
		if strings.HasPrefix(strings.ReplaceAll(key, "/", "."), "net.ipv6.") {
			c.unsafe(of(svc, "sysctls", key), svc.Sysctls[key], why)
		}
	}
	for _, name := range svc.CapAdd {
		if capability(name) == "NET_RAW" {
			c.unsafe(of(svc, "cap_add"), "NET_RAW", why)
		}
	}
	for _, port := range svc.Ports {
		if port.Protocol != fumehood.ProtocolTCP && port.Protocol != fumehood.ProtocolUDP {
			c.refuse(of(svc, "ports"), "port %d/%s cannot be published: on internal networks, only TCP and UDP are forwarded", port.Target, port.Protocol)
		}
	}
}

// capability returns a capability's name in upper case without CAP_.
func capability(name string) string {
	return strings.TrimPrefix(strings.ToUpper(name), "CAP_")
}

// harmless are the capabilities that a service may add: those that the Engine grants by default, and those whose effect
// is limited to the container since Linux 4.8.
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

// securityOpts rejects all security options except the known ones that do not weaken the container.
func (c *checking) securityOpts(svc *types.ServiceConfig) {
	for _, opt := range svc.SecurityOpt {
		name, value, _ := strings.Cut(strings.Replace(opt, ":", "=", 1), "=")
		switch {
		case name == "no-new-privileges", isBuiltinSeccomp(opt), name == "apparmor" && value == "docker-default":
		default:
			c.unsafe(of(svc, "security_opt"), opt, "it weakens the kernel's protection against containers")
		}
	}
}

// namespaced are the kernel settings that each container has for itself. The Engine rejects others too, but not all of
// them.
var namespaced = []string{
	"kernel.domainname", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shm_rmid_forced", "kernel.shmall",
	"kernel.shmmax", "kernel.shmmni",
}

// kernel checks a service's sysctls, ulimits and storage options.
func (c *checking) kernel(svc *types.ServiceConfig) {
	for _, key := range slices.Sorted(maps.Keys(svc.Sysctls)) {
		name := strings.ReplaceAll(key, "/", ".")
		if strings.Contains(name, "..") || !strings.HasPrefix(name, "net.") && !strings.HasPrefix(name, "fs.mqueue.") && !slices.Contains(namespaced, name) {
			c.unsafe(of(svc, "sysctls", key), svc.Sysctls[key], "this setting is not known to be the container's alone")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(svc.Ulimits)) {
		if lower := strings.ToLower(name); lower == "rtprio" || lower == "nice" { // as the Engine reads them
			c.unsafe(of(svc, "ulimits", name), "", "its processes can take the CPUs from the host's")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(svc.StorageOpt)) {
		if key != "size" {
			c.unsafe(of(svc, "storage_opt", key), svc.StorageOpt[key], "this option of the storage driver is not known to be harmless")
		}
	}
}

// deploy rejects settings for clusters. Settings for updates are ignored, since a sandbox is never updated.
func (c *checking) deploy(svc *types.ServiceConfig) {
	d := svc.Deploy
	if d == nil {
		return
	}
	const why = "cannot be honored: it is for clusters"
	if d.Mode != "" && d.Mode != "replicated" && d.Mode != "global" {
		c.refuse(of(svc, "deploy", "mode"), why)
	}
	if d.EndpointMode != "" && d.EndpointMode != "dnsrr" {
		c.refuse(of(svc, "deploy", "endpoint_mode"), why+"; a service's name has the addresses of all its containers")
	}
	if l := d.Resources.Limits; l != nil && noPIDsLimit(l.Pids) {
		c.unsafe(of(svc, "deploy", "resources", "limits", "pids"), fmt.Sprint(l.Pids), "it can start processes until the host has none left")
	}
}

// labels rejects the labels that Fumehood and Compose use to find objects.
func (c *checking) labels(keys []string, labels types.Labels) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(key, "fumehood.") || strings.HasPrefix(key, "com.docker.compose.") {
			c.refuse(append(keys, key), "labels with this prefix are reserved")
		}
	}
}

func (c *checking) build(svc *types.ServiceConfig) {
	b := svc.Build
	if b == nil {
		return
	}
	if !slices.Contains([]string{"", "default", "none", "bridge"}, b.Network) {
		c.unsafe(of(svc, "build", "network"), b.Network, "the build's network is not the sandbox's")
	}
	c.labels(of(svc, "build", "labels"), b.Labels)
	for _, name := range image.ReservedArgs {
		if _, ok := b.Args[name]; ok {
			c.unsafe(of(svc, "build", "args", name), "", image.ForeignCache)
		}
	}
	for i, from := range b.CacheFrom {
		if strings.ContainsAny(from, "=,") {
			c.refuse(of(svc, "build", "cache_from", fmt.Sprint(i)), "cannot be honored: only names of images are supported, not %s", from)
		}
	}
	switch at := of(svc, "build", "context"); {
	case c.withoutContext(svc):
		return
	case !filepath.IsAbs(b.Context):
		c.refuse(at, "the build context must be a folder of this machine, not %s%s", b.Context, c.needsDir())
		return
	}
	c.inside(of(svc, "build", "context"), b.Context)
	if dockerfile := b.Dockerfile; dockerfile != "" {
		if !filepath.IsAbs(dockerfile) {
			dockerfile = filepath.Join(b.Context, dockerfile)
		}
		c.inside(of(svc, "build", "dockerfile"), dockerfile)
	}
}

// inside rejects a path that the gate does not allow.
func (c *checking) inside(keys []string, path string) {
	if err := c.gate.Check(path); err != nil {
		c.refuse(keys, "%w", err)
	}
}

func (c *checking) network(key string, n types.NetworkConfig) {
	at := func(keys ...string) []string { return append([]string{"networks", key}, keys...) }
	if bool(n.External) {
		c.unsafe(at("external"), n.Name, "other containers are in it, and it may reach the internet")
		return
	}
	if n.Driver != "" && n.Driver != "bridge" && n.Driver != "default" {
		c.unsafe(at("driver"), n.Driver, "networks of this driver reach beyond the host")
	}
	if d := n.Ipam.Driver; d != "" && d != "default" {
		c.unsafe(at("ipam", "driver"), d, "it assigns addresses in place of the Engine")
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
