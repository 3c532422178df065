package compose

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/docker/compose/v5/pkg/api"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/engine"
)

// Policy is what a project has to be made to fit before it is created.
type Policy struct {
	// Labels are those of every object.
	Labels Labels
	// ConfigFile is where the resolved project will be written, for `docker compose -p`; empty where it is not.
	ConfigFile string
	// Volume is the guest's volume; empty where commands go by the Engine's own calls.
	Volume string
	// Serve has the guest serve as main process in services that only idle; else it idles there.
	Serve bool
	// Sockets is the folder of the host in which a service's guests are listened for; empty where none is.
	Sockets func(service string) string
	// Limits are those of services that set none.
	Limits lazaret.Limits
	// Egress is the run's: "" or lazaret.EgressInternet.
	Egress string
	// AllowUnsafe allows what breaks the isolation. It is a Change then, in place of an error.
	AllowUnsafe bool
	// Images are the images that services run, by service. What is missing has no program of its own.
	Images map[string]Image
	// Subnets are one for each network that Project.NetworksNeeded tells, in its order.
	Subnets []netip.Prefix
}

// Image is what a service's image is and runs by itself.
type Image struct {
	Ref                 string // what to start; empty means what the service says
	Entrypoint, Command []string
}

// Change is one thing that the policy made different, or lets pass although it weakens the isolation.
type Change struct {
	Service string `json:"service,omitempty"` // empty for what is not of one service
	Key     string `json:"key"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Why     string `json:"why"`
	Unsafe  bool   `json:"unsafe,omitempty"`
}

// NetworksNeeded tells of each network that needs a subnet how many addresses it needs.
func (p *Project) NetworksNeeded() []int {
	var sizes []int
	for _, key := range p.ownNetworks() {
		sizes = append(sizes, p.addresses(key))
	}
	return sizes
}

// ownNetworks are the keys of those networks that will be made with a subnet of ours, sorted.
func (p *Project) ownNetworks() []string {
	var keys []string
	for key, n := range p.project.Networks {
		if !bool(n.External) && len(n.Ipam.Config) == 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// addresses is how many addresses a network needs: one for each container, its own, the gateway's and the broadcast.
func (p *Project) addresses(network string) int {
	n := 3
	for _, svc := range p.project.Services {
		if _, ok := svc.Networks[network]; ok {
			n += svc.GetScale()
		}
	}
	return n
}

// Apply makes the project fit the policy. It is pure. An error is an ErrConfig, and leaves the project half changed.
func (p *Project) Apply(pol Policy) ([]Change, error) {
	a := &applying{p: p, pol: pol, internal: p.settings.egress == "" && pol.Egress == ""}
	if err := a.networks(); err != nil {
		return nil, err
	}
	p.forward, p.serves = map[string][]lazaret.Port{}, map[string]bool{}
	for _, name := range p.order {
		svc := p.project.Services[name]
		if err := a.service(&svc); err != nil {
			return nil, err
		}
		p.project.Services[name] = svc
	}
	if pol.Volume != "" {
		p.project.Volumes[guestVolume] = types.VolumeConfig{Name: pol.Volume, External: true}
	}
	for key, v := range p.project.Volumes {
		if !bool(v.External) {
			v.Name = p.project.Name + "_" + key
			v.Labels = labelled(v.Labels, pol.Labels)
			p.project.Volumes[key] = v
		}
	}
	return a.changes, nil
}

// guestVolume is the key of the guest's volume in projects.
const guestVolume = "lazaret-guest"

// applying is one Apply under way.
type applying struct {
	p        *Project
	pol      Policy
	internal bool // networks reach nothing outside
	changes  []Change
}

func (a *applying) change(c Change) { a.changes = append(a.changes, c) }

func (a *applying) networks() error {
	own := a.p.ownNetworks()
	if len(a.pol.Subnets) < len(own) {
		return fmt.Errorf("%d subnets for %d networks", len(a.pol.Subnets), len(own))
	}
	for i, key := range own {
		n := a.p.project.Networks[key]
		n.Ipam.Config = []*types.IPAMPool{{Subnet: a.pol.Subnets[i].String()}}
		a.p.project.Networks[key] = n
	}
	for key, n := range a.p.project.Networks {
		if bool(n.External) {
			continue
		}
		n.Name = a.p.project.Name + "_" + key
		n.Labels = labelled(n.Labels, a.pol.Labels)
		if a.internal {
			n.Internal = true
		}
		a.p.project.Networks[key] = n
	}
	return nil
}

func (a *applying) service(svc *types.ServiceConfig) error {
	svc.Labels = labelled(svc.Labels, a.pol.Labels)
	svc.ContainerName = ""
	svc.CustomLabels = types.Labels{
		api.ProjectLabel: a.p.project.Name, api.ServiceLabel: svc.Name, api.OneoffLabel: "False",
		api.VersionLabel: api.ComposeVersion, api.WorkingDirLabel: a.p.project.WorkingDir,
	}
	if a.pol.ConfigFile != "" {
		svc.CustomLabels[api.ConfigFilesLabel] = a.pol.ConfigFile
	}
	if img := a.pol.Images[svc.Name]; img.Ref != "" {
		svc.Image, svc.Build = img.Ref, nil
	}
	svc.PullPolicy = types.PullPolicyNever
	if a.pol.Volume != "" {
		svc.Volumes = append(svc.Volumes, types.ServiceVolumeConfig{
			Type: types.VolumeTypeVolume, Source: guestVolume, Target: GuestDir, ReadOnly: true,
			Volume: &types.ServiceVolumeVolume{NoCopy: true},
		})
		if idles(svc, a.pol.Images[svc.Name]) {
			svc.Entrypoint, svc.Command = types.ShellCommand{GuestProgram}, types.ShellCommand{}
			if a.pol.Serve {
				svc.Entrypoint = append(svc.Entrypoint, "serve")
				svc.StdinOpen, svc.Tty = true, false
				svc.Logging = &types.LoggingConfig{Driver: "none"}
				svc.Labels = svc.Labels.Add(engine.LabelMain, engine.MainGuest)
				a.p.serves[svc.Name] = true
			}
		}
	}
	return nil
}

// idles says whether all that a service runs is a program that waits.
func idles(svc *types.ServiceConfig, img Image) bool {
	cmd := slices.Concat(svc.Entrypoint, svc.Command)
	return slices.Equal(cmd, []string{"sleep", "infinity"}) || slices.Equal(cmd, []string{"tail", "-f", "/dev/null"})
}

func labelled(own types.Labels, ours Labels) types.Labels {
	l := maps.Clone(own)
	if l == nil {
		l = types.Labels{}
	}
	maps.Copy(l, ours)
	return l
}

// YAML is the project as Compose reads it, with nothing left to interpolate and no secret's content.
func (p *Project) YAML() ([]byte, error) {
	out, err := p.project.MarshalYAML()
	if err != nil {
		return nil, err
	}
	return escapeDollars(out), nil
}

// escapeDollars makes Compose read each $ as itself.
func escapeDollars(yaml []byte) []byte {
	return bytes.ReplaceAll(yaml, []byte("$"), []byte("$$"))
}
