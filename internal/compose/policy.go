package compose

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// Policy is what a project is made to fit before it is created. Its zero value fits for looking at it.
type Policy struct {
	// Labels are those of every object.
	Labels Labels
	// Version is that of the Compose SDK.
	Version string
	// ConfigFile is where the resolved project lies, for `docker compose`; empty where it is not written.
	ConfigFile string
	// Volume is the guest's volume; empty where commands go by the Engine's own calls.
	Volume string
	// Serve has the guest serve as main process of services that only idle; else it only idles there too.
	Serve bool
	// Sockets is the folder of the host in which a service's guests are listened for; "", and nil, where none is.
	Sockets func(service string) string
	// Limits are those of services that set none.
	Limits fumehood.Limits
	Unheld Unheld
	// Images are what services run, by service. One that is not here runs what the project says.
	Images map[string]Image
	// Runtime is what the user chose; empty means the daemon's default. Runtimes are the daemon's.
	Runtime  string
	Runtimes Runtimes
	// Subnets are one for each network of NetworksNeeded, in its order. Without any, the Engine chooses.
	Subnets []netip.Prefix
}

// Image is a service's image.
type Image struct {
	Ref                 string // what is started; empty means what the project says
	Entrypoint, Command []string
}

// Change is one thing that is not as the files have it, or that passed although it breaks the isolation.
type Change struct {
	Service string `json:"service,omitempty"` // empty where it is about none
	Key     string `json:"key"`
	From    string `json:"from,omitempty"` // empty for nothing
	To      string `json:"to,omitempty"`   // empty for nothing
	Reason  string `json:"reason"`
	Unsafe  bool   `json:"unsafe,omitempty"` // it is as the files have it, and allowed
}

// NetworksNeeded tells of each network that needs a subnet how many addresses it has to have, those of the
// network itself, its gateway and its broadcasts included.
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

// subnetless are the networks that will be made with a subnet of ours, sorted.
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

// Internal says whether the project's networks reach nothing outside.
func (p *Project) Internal() bool { return p.internal }

// Apply makes the project, as it was loaded, fit a policy. It is pure, and may be done again with another.
func (p *Project) Apply(pol Policy) []Change {
	p.project = p.as.WithoutUnnecessaryResources() // a copy
	p.serve, p.forward, p.runtimes = map[string]bool{}, map[string][]fumehood.Port{}, pol.Runtimes
	a := &applying{Project: p, pol: pol, changes: slices.Clone(p.notes)}
	a.networks()
	a.volumes()
	for _, name := range p.order {
		svc := p.project.Services[name]
		a.apply(&svc)
		p.project.Services[name] = svc
	}
	a.shared()
	return a.changes
}

// applying is one Apply under way.
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
	svc.Labels = labelled(svc.Labels, a.pol.Labels)
	svc.CustomLabels = types.Labels{
		ProjectLabel: a.project.Name, ServiceLabel: svc.Name, OneoffLabel: "False",
		VersionLabel: a.pol.Version, WorkingDirLabel: a.project.WorkingDir,
		owner.LabelDefault: strconv.FormatBool(svc.Name == a.main),
	}
	if a.pol.ConfigFile != "" {
		svc.CustomLabels[ConfigFilesLabel] = a.pol.ConfigFile
	}
	img := a.pol.Images[svc.Name]
	if img.Ref != "" {
		svc.Image, svc.Build, svc.PullPolicy = img.Ref, nil, types.PullPolicyNever // it is there
	}
	a.alias(svc)
	a.resolver(svc)
	a.ports(svc)
	a.binds(svc)
	a.limits(svc)
	a.pol.Unheld.standIn(svc)
	a.runtime(svc)
	idle := a.idles(svc, img)
	a.harden(svc, idle)
	a.process(svc, idle)
	if !a.serve[svc.Name] {
		a.log(svc)
	}
}

// labelled adds our labels.
func labelled(theirs types.Labels, ours Labels) types.Labels {
	l := maps.Clone(theirs)
	if l == nil {
		l = types.Labels{}
	}
	maps.Copy(l, ours)
	return l
}

// networks makes them of this sandbox alone, and internal where nothing says otherwise.
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
		n.Labels = labelled(n.Labels, a.pol.Labels)
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
			if n.EnableIPv6 == nil { // an Engine may be told to have it by default
				n.EnableIPv6 = new(false)
			}
		}
		a.project.Networks[key] = n
	}
}

// OwnPrefix is how the names of a sandbox's networks and volumes begin, and those of no other sandbox: no sandbox's name
// has a dot. With "_", as Compose has it, shop_two with a volume data and shop with a volume two_data would share it.
func OwnPrefix(sandbox string) string { return sandbox + "." }

// OwnNames are the names of the networks and volumes that the project makes.
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

// inhibitIPv4 keeps the Engine, old and new, from giving the host an address on a network. Else what listens
// on any of the host's addresses can be reached from an internal network too.
const inhibitIPv4 = "com.docker.network.bridge.inhibit_ipv4"

// volumes makes them of this sandbox alone.
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
		v.Labels = labelled(v.Labels, a.pol.Labels)
		a.project.Volumes[key] = v
	}
	if a.pol.Volume != "" {
		a.project.Volumes[guestVolume] = types.VolumeConfig{Name: a.pol.Volume, External: true}
	}
}

// alias makes a container's name one that the other services know it by: containers' names are a daemon's.
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

// noResolver is in the container's own network, where nobody answers: the Engine's resolver has nobody to ask
// for names that it does not know. Some Engines forward such questions over the host's network otherwise.
const noResolver = "127.0.0.1"

func (a *applying) resolver(svc *types.ServiceConfig) {
	if a.onlyInternal(svc) && len(svc.DNS) == 0 {
		svc.DNS = types.StringList{noResolver}
		a.change(svc, "dns", "", noResolver, "no name server outside is asked; services find each other as ever")
	}
}

// ports publishes them where they clash with nobody's, or leaves them to be forwarded.
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
		a.change(svc, "ports", was, portText(port)+", forwarded", "the Engine publishes nothing of internal networks")
	}
	svc.Ports = kept
}

// portText is a port as people write it.
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

// binds keeps the Engine from making folders on the host.
func (a *applying) binds(svc *types.ServiceConfig) {
	for i, v := range svc.Volumes {
		if v.Type == types.VolumeTypeBind && (v.Bind == nil || bool(v.Bind.CreateHostPath)) {
			b := types.ServiceVolumeBind{}
			if v.Bind != nil {
				b = *v.Bind
			}
			b.CreateHostPath = false
			svc.Volumes[i].Bind = &b
			a.change(svc, "volumes", v.Source+" is made if missing", v.Source+" must exist", "sandboxes make nothing on the host")
		}
	}
	if a.pol.Volume == "" {
		return
	}
	svc.Volumes = append(svc.Volumes, types.ServiceVolumeConfig{
		Type: types.VolumeTypeVolume, Source: guestVolume, Target: GuestDir, ReadOnly: true,
		Volume: &types.ServiceVolumeVolume{NoCopy: true},
	})
	a.change(svc, "volumes", "", a.pol.Volume+":"+GuestDir+":ro", "the guest, which runs commands, is in it")
	if a.pol.Sockets != nil {
		if dir := a.pol.Sockets(svc.Name); dir != "" {
			svc.Volumes = append(svc.Volumes, bind(dir, SocketDir, true))
		}
	}
}

// escape keeps Compose from interpolating again.
func escape(yaml []byte) []byte { return bytes.ReplaceAll(yaml, []byte("$"), []byte("$$")) }

// YAML is the project as Compose reads it, with nothing left to interpolate, and without what secrets hold.
func (p *Project) YAML() ([]byte, error) {
	out, err := p.project.MarshalYAML()
	return escape(out), err
}

// JSON is YAML, as JSON.
func (p *Project) JSON() ([]byte, error) {
	out, err := p.project.MarshalJSON()
	return escape(out), err
}

// String is the change on one line.
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
