package compose

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// Policy says how Apply changes a project before it is created. The zero value is for showing a project only.
type Policy struct {
	// Labels are added to every object.
	Labels Labels
	// Version is the version of the Compose SDK.
	Version string
	// ConfigFile is the path of the resolved project, for `docker compose`. It is empty if the file is not written.
	ConfigFile string
	// Volume is the name of the guest's volume. It is empty if no service has a guest.
	Volume string
	// Serve makes the guest serve the host as main process of services that only wait. Otherwise it only waits.
	Serve bool
	// Sockets returns the host folder with the sockets for a service's guests, or "" for none. It may be nil.
	Sockets func(service string) string
	// Limits that are not 0 are the highest that a service may have. The defaults apply to services that set none.
	Limits fumehood.Limits
	Unheld Unheld
	// Images are the images to run, by service. Other services run the image that the project names.
	Images map[string]Image
	// Runtime is the runtime that the user chose; empty means the daemon's default. Runtimes are those of the daemon.
	Runtime  string
	Runtimes Runtimes
	// Subnets has one subnet for each network of NetworksNeeded, in the same order. If it is empty, the Engine chooses.
	Subnets []netip.Prefix
}

// Image is a service's image.
type Image struct {
	Ref                 string // reference to start; empty means the project's
	Entrypoint, Command []string
	// Health is the image's health check: Test as in the image, and zero values for what it does not set. Only Members
	// uses it.
	Health Health
}

// Change is a difference from the files, or a setting that was allowed although it breaks the isolation.
type Change struct {
	Service string `json:"service,omitempty"` // empty if it concerns no service
	Key     string `json:"key"`
	From    string `json:"from,omitempty"` // empty if the files set nothing
	To      string `json:"to,omitempty"`   // empty if the value was removed
	Reason  string `json:"reason"`
	Unsafe  bool   `json:"unsafe,omitempty"` // the files' value is unsafe, and allowed
}

// NetworksNeeded returns, for each network that needs a subnet, the number of addresses that it needs, including the
// network's own, its gateway's and its broadcast address.
func (p *Project) NetworksNeeded() []int {
	var sizes []int
	for _, key := range p.subnetless() {
		n := 3
		for _, svc := range p.as.Services {
			if _, ok := svc.Networks[key]; ok {
				n += svc.GetScale()
			}
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// subnetless returns the sorted keys of the networks that the project creates and sets no subnet for.
func (p *Project) subnetless() []string {
	var keys []string
	for key, n := range p.as.Networks {
		if !bool(n.External) && !slices.ContainsFunc(n.Ipam.Config, func(pool *types.IPAMPool) bool { return pool.Subnet != "" }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Internal reports whether the project's networks have no access to the outside.
func (p *Project) Internal() bool { return p.internal }

// Apply changes the project to fit a policy and returns the changes. It is pure and may be called again with
// another policy.
func (p *Project) Apply(pol Policy) []Change {
	p.project = p.as.WithoutUnnecessaryResources() // a copy
	p.project.Environment = maps.Clone(p.project.Environment)
	delete(p.project.Environment, "DOCKER_DEFAULT_PLATFORM") // the SDK's default; the project's .env could set it
	p.serve, p.forward, p.runtimes = map[string]bool{}, map[string][]fumehood.Port{}, pol.Runtimes
	a := &applying{Project: p, pol: pol, changes: slices.Clone(p.notes)}
	a.networks()
	a.volumes()
	for _, name := range p.order {
		svc := p.project.Services[name]
		a.apply(&svc)
		p.project.Services[name] = svc
	}
	a.boundShared()
	return a.changes
}

// applying is the state of one call of Apply.
type applying struct {
	*Project
	pol     Policy
	changes []Change
}

func (a *applying) change(svc *types.ServiceConfig, key, from, to, why string) {
	c := Change{Key: key, From: from, To: to, Reason: why}
	if svc != nil {
		c.Service = svc.Name
	}
	a.changes = append(a.changes, c)
}

// guestVolume is the key of the guest's volume in projects.
const guestVolume = "fumehood-guest"

func (a *applying) apply(svc *types.ServiceConfig) {
	svc.Labels = addLabels(svc.Labels, a.pol.Labels)
	svc.CustomLabels = types.Labels{
		ProjectLabel: a.project.Name, ServiceLabel: svc.Name, OneoffLabel: "False",
		VersionLabel: a.pol.Version, owner.LabelDefault: strconv.FormatBool(svc.Name == a.main),
	}
	if a.pol.ConfigFile != "" {
		svc.CustomLabels[ConfigFilesLabel] = a.pol.ConfigFile
	}
	switch {
	case a.model != nil:
		svc.CustomLabels[WorkingDirLabel] = a.project.WorkingDir
	case a.pol.ConfigFile != "": // the only file is the one that is written
		svc.CustomLabels[WorkingDirLabel] = filepath.Dir(a.pol.ConfigFile)
	}
	img := a.pol.Images[svc.Name]
	if img.Ref != "" {
		svc.Image, svc.Build, svc.PullPolicy = img.Ref, nil, types.PullPolicyNever // the image is present
	}
	a.alias(svc)
	a.resolver(svc)
	a.ports(svc)
	a.binds(svc)
	a.limits(svc)
	a.pol.Unheld.standIn(svc)
	a.runtime(svc)
	a.emptyCommand(svc, img)
	idle := a.idles(svc, img)
	a.harden(svc, idle)
	a.process(svc, idle)
	if !a.serve[svc.Name] {
		a.log(svc)
	}
}

// addLabels returns a copy of a project's labels with ours added.
func addLabels(labels types.Labels, own Labels) types.Labels {
	l := maps.Clone(labels)
	if l == nil {
		l = types.Labels{}
	}
	maps.Copy(l, own)
	return l
}

// networks makes the networks private to this sandbox, and internal unless egress is allowed.
func (a *applying) networks() {
	for i, key := range a.subnetless() {
		if i < len(a.pol.Subnets) {
			n := a.project.Networks[key]
			n.Ipam.Config = []*types.IPAMPool{{Subnet: a.pol.Subnets[i].String()}}
			a.project.Networks[key] = n
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.project.Networks)) {
		n := a.project.Networks[key]
		if bool(n.External) {
			continue
		}
		at := "networks." + key
		n.Labels = addLabels(n.Labels, a.pol.Labels)
		if own := objectName(a.project.Name, key); n.Name != own {
			a.change(nil, at+".name", n.Name, own, "sandboxes share no network")
			n.Name = own
		}
		if a.internal && !n.Internal {
			a.change(nil, at+".internal", "false", "true", "services reach each other and nothing else; --egress internet, or x-fumehood: {egress: internet}, lets them out")
			n.Internal = true
		}
		if n.Internal {
			n.DriverOpts = maps.Clone(n.DriverOpts)
			if n.DriverOpts == nil {
				n.DriverOpts = types.Options{}
			}
			n.DriverOpts[inhibitIPv4] = "true"
			a.change(nil, at+".driver_opts."+inhibitIPv4, "", "true", "the host has no address on an internal network")
			if n.EnableIPv6 == nil { // an Engine may be configured to enable it by default
				n.EnableIPv6 = new(false)
			}
		}
		a.project.Networks[key] = n
	}
}

// OwnPrefix returns the prefix of the names of a sandbox's networks and volumes. No other sandbox has it, since names
// of sandboxes have no dots. With Compose's "_", sandbox shop_two with volume data and sandbox shop with volume
// two_data would share a volume.
func OwnPrefix(sandbox string) string { return sandbox + "." }

// OwnNames returns the names of the networks and volumes that the project creates.
func (p *Project) OwnNames() []string {
	var names []string
	for key, n := range p.as.Networks {
		if !bool(n.External) {
			names = append(names, objectName(p.as.Name, key))
		}
	}
	for key, v := range p.as.Volumes {
		if !bool(v.External) {
			names = append(names, objectName(p.as.Name, key))
		}
	}
	return names
}

func objectName(sandbox, key string) string { return OwnPrefix(sandbox) + key }

// inhibitIPv4 keeps all versions of the Engine from giving the host an address on a network. Otherwise programs that
// listen on all of the host's addresses can be reached even from an internal network.
const inhibitIPv4 = "com.docker.network.bridge.inhibit_ipv4"

// volumes makes the volumes private to this sandbox, and adds the guest's volume.
func (a *applying) volumes() {
	for _, key := range slices.Sorted(maps.Keys(a.project.Volumes)) {
		v := a.project.Volumes[key]
		if bool(v.External) {
			continue
		}
		if own := objectName(a.project.Name, key); v.Name != own {
			a.change(nil, "volumes."+key+".name", v.Name, own, "sandboxes share no volume")
			v.Name = own
		}
		v.Labels = addLabels(v.Labels, a.pol.Labels)
		a.project.Volumes[key] = v
	}
	if a.pol.Volume != "" {
		a.project.Volumes[guestVolume] = types.VolumeConfig{Name: a.pol.Volume, External: true}
	}
}

// alias turns a container_name into a network alias, since container names must be unique in the daemon.
func (a *applying) alias(svc *types.ServiceConfig) {
	name := svc.ContainerName
	if name == "" {
		return
	}
	svc.ContainerName = ""
	for _, key := range slices.Sorted(maps.Keys(svc.Networks)) {
		n := svc.Networks[key]
		if n == nil {
			n = &types.ServiceNetworkConfig{}
		}
		if !slices.Contains(n.Aliases, name) {
			n.Aliases = append(n.Aliases, name)
		}
		svc.Networks[key] = n
	}
	a.change(svc, "container_name", name, containerName(a.project.Name, *svc, 1), "sandboxes run side by side; on the project's networks the service has this name too")
}

// noResolver is an address in the container's own network where no server answers. With it, the Engine's resolver has
// no server to ask for unknown names. Otherwise some Engines forward such queries over the host's network.
const noResolver = "127.0.0.1"

func (a *applying) resolver(svc *types.ServiceConfig) {
	if a.onlyInternal(svc) && len(svc.DNS) == 0 {
		svc.DNS = types.StringList{noResolver}
		a.change(svc, "dns", "", noResolver, "no outside name server is used; services still resolve each other")
	}
}

// ports publishes ports where they cannot conflict with others. Ports on internal networks are forwarded instead.
func (a *applying) ports(svc *types.ServiceConfig) {
	const loopback = "127.0.0.1"
	var kept []types.ServicePortConfig
	for _, port := range svc.Ports {
		was := portText(port)
		if port.HostIP == "" || !a.settings.keepPorts {
			port.HostIP = loopback
		}
		if !a.settings.keepPorts {
			port.Published = ""
		}
		if !a.onlyInternal(svc) {
			kept = append(kept, port)
			if now := portText(port); now != was {
				a.change(svc, "ports", was, now, "sandboxes run side by side, and are reached from this host only; x-fumehood: {keep_ports: true} keeps ports")
			}
			continue
		}
		host := 0
		if n, err := fmt.Sscanf(port.Published, "%d", &host); n != 1 || err != nil {
			host = 0
		}
		a.forward[svc.Name] = append(a.forward[svc.Name], fumehood.Port{Host: host, Container: int(port.Target), Protocol: port.Protocol, Address: port.HostIP})
		a.change(svc, "ports", was, portText(port)+", forwarded", "the Engine publishes no ports on internal networks")
	}
	svc.Ports = kept
}

// portText formats a port as in Compose's short form.
func portText(p types.ServicePortConfig) string {
	s := fmt.Sprintf("%d/%s", p.Target, p.Protocol)
	if p.Published != "" || p.HostIP != "" {
		s = p.Published + ":" + s
	}
	if p.HostIP != "" {
		s = p.HostIP + ":" + s
	}
	return s
}

// binds keeps the Engine from creating folders on the host, and mounts the guest and its sockets.
func (a *applying) binds(svc *types.ServiceConfig) {
	for i, v := range svc.Volumes {
		if v.Type == types.VolumeTypeBind && (v.Bind == nil || bool(v.Bind.CreateHostPath)) {
			b := types.ServiceVolumeBind{}
			if v.Bind != nil {
				b = *v.Bind
			}
			b.CreateHostPath = false
			svc.Volumes[i].Bind = &b
			a.change(svc, "volumes", v.Source+" is created if missing", v.Source+" must exist", "sandboxes create nothing on the host")
		}
	}
	if a.pol.Volume == "" {
		return
	}
	svc.Volumes = append(svc.Volumes, types.ServiceVolumeConfig{
		Type: types.VolumeTypeVolume, Source: guestVolume, Target: GuestDir, ReadOnly: true,
		Volume: &types.ServiceVolumeVolume{NoCopy: true},
	})
	a.change(svc, "volumes", "", a.pol.Volume+":"+GuestDir+":ro", "it contains the guest, which runs commands")
	if a.pol.Sockets != nil {
		if dir := a.pol.Sockets(svc.Name); dir != "" {
			svc.Volumes = append(svc.Volumes, bind(dir, SocketDir, true))
		}
	}
}

// escape keeps Compose from interpolating the text again.
func escape(yaml []byte) []byte { return bytes.ReplaceAll(yaml, []byte("$"), []byte("$$")) }

// YAML returns the project in Compose's format, fully interpolated and without the contents of secrets.
func (p *Project) YAML() ([]byte, error) {
	out, err := p.project.MarshalYAML()
	return escape(out), err
}

// JSON returns the same as YAML, in JSON.
func (p *Project) JSON() ([]byte, error) {
	out, err := p.project.MarshalJSON()
	return escape(out), err
}

// String formats the change on one line.
func (c Change) String() string {
	var b strings.Builder
	if c.Service != "" {
		b.WriteString(c.Service + ".")
	}
	b.WriteString(c.Key)
	switch {
	case c.Unsafe:
		b.WriteString(": unsafe, allowed")
		if c.To != "" {
			b.WriteString(": " + c.To)
		}
	case c.From != "" && c.To != "":
		b.WriteString(": " + c.From + " -> " + c.To)
	case c.From != "":
		b.WriteString(": without " + c.From)
	case c.To != "":
		b.WriteString(": " + c.To)
	}
	b.WriteString(" (" + c.Reason + ")")
	return b.String()
}
