package compose

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// DefaultService is the service's name in a generated project.
const DefaultService = "default"

// GuestDir is where the guest's volume is mounted; GuestProgram is the guest in it.
const (
	GuestDir     = "/.fumehood"
	GuestProgram = GuestDir + "/guest"
	// ReadableGuest is the same program in a file that every user may read, which gVisor needs to run it.
	ReadableGuest = GuestDir + "/guest-readable"
	// SocketDir is where the host's folder with its sockets is mounted.
	SocketDir = GuestDir + "/host"
)

// capabilities are what a generated service's processes may have at most, and root in it has. It is the
// Engine's default set less those that only attackers have used: raw sockets, device nodes, chroot,
// audit records, file capabilities and the passing on of capabilities.
var capabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID",
}

// Project is a Compose project: a generated one, or one that was loaded and, after Apply, can be created.
type Project struct {
	project *types.Project
	main    string                     // the default service
	serve   map[string]bool            // by service: its main process is a guest that serves the host
	forward map[string][]fumehood.Port // by service: ports that the host forwards connections to

	runtimes Runtimes // of the daemon, as far as they are known

	*loaded // nil of a generated one
}

// Labels are the labels of a project's objects, by name.
type Labels = map[string]string

// Main says what the main process of a generated service does.
type Main struct {
	Volume string // the name of the guest's volume
	Serve  bool   // it serves the host over its standard input and output; else it only idles
	// Sockets is the folder of the host in which it listens for guests; empty where it does not.
	Sockets string
	// Version is that of the Compose SDK.
	Version string
	// ConfigFile is where the project will lie as a file; empty where it is not written.
	ConfigFile string
	Unheld     Unheld
	// Runtimes are the daemon's.
	Runtimes Runtimes
	// Subnet is that of the network that is made for fumehood.NetworkBridge. Without one, the Engine chooses.
	Subnet netip.Prefix
}

// ownNetwork is the key of the network that a generated project has for itself.
const ownNetwork = "default"

// Types is the project for the Compose SDK.
func (p *Project) Types() *types.Project { return p.project }

// OwnNetworkSize is how many addresses an OwnNetwork needs: of the network, its gateway, its broadcasts and its container.
const OwnNetworkSize = 4

// OwnNetwork is the name of the network that a sandbox with fumehood.NetworkBridge has for itself: it is not the Engine's
// bridge, on which all containers reach each other.
func OwnNetwork(sandbox string) string { return objectName(sandbox, ownNetwork) }

// Generate makes the one-service project for a spec, which is valid and has an image and a name. It is pure.
func Generate(spec fumehood.Spec, main Main, labels Labels) *Project {
	limits := spec.Limits.WithDefaults()
	grace := types.Duration(time.Second)
	svc := types.ServiceConfig{
		Name:          DefaultService,
		ContainerName: ContainerName(spec.Name),
		Image:         spec.Image,
		PullPolicy:    types.PullPolicyNever, // the provider has pulled: the SDK must not ask a registry
		Entrypoint:    types.ShellCommand{main.Runtimes.Guest(spec.Runtime)},
		Command:       types.ShellCommand{},
		User:          spec.User,
		Runtime:       spec.Runtime,
		WorkingDir:    spec.Dir,
		Environment:   environment(spec.Env),
		Labels:        maps.Clone(types.Labels(labels)).Add(owner.LabelDefault, "true"),
		CustomLabels: types.Labels{
			ProjectLabel: spec.Name, ServiceLabel: DefaultService, OneoffLabel: "False",
			VersionLabel: main.Version,
		},
		CapDrop:     []string{"ALL"},
		CapAdd:      slices.Clone(capabilities),
		SecurityOpt: []string{"no-new-privileges=true"},
		Logging:     &types.LoggingConfig{Driver: "json-file", Options: types.Options{"max-size": "1m", "max-file": "1"}},
		// The guest takes no signal as an order to end, since the code under test could send it too: so
		// the daemon need not try.
		StopSignal:      "SIGKILL",
		StopGracePeriod: &grace,
		Restart:         types.RestartPolicyNo,
		Volumes: []types.ServiceVolumeConfig{{
			Type: types.VolumeTypeVolume, Source: "guest", Target: GuestDir, ReadOnly: true,
			Volume: &types.ServiceVolumeVolume{NoCopy: true},
		}},
	}
	if main.ConfigFile != "" {
		svc.CustomLabels[ConfigFilesLabel], svc.CustomLabels[WorkingDirLabel] = main.ConfigFile, filepath.Dir(main.ConfigFile)
	}
	if main.Serve {
		svc.Entrypoint = append(svc.Entrypoint, "serve")
		svc.StdinOpen = true
		// Its output is the conversation with the host, and not for a log.
		svc.Logging = &types.LoggingConfig{Driver: "none"}
		svc.Labels = svc.Labels.Add(owner.LabelMain, owner.MainGuest)
	}
	if main.Sockets != "" {
		svc.Volumes = append(svc.Volumes, bind(main.Sockets, SocketDir, true))
	}
	if limits.Memory != fumehood.NoLimit {
		svc.MemLimit = types.UnitBytes(limits.Memory)
		svc.MemSwapLimit = types.UnitBytes(limits.Memory) // the same: no swap on top
	}
	if limits.CPUs != fumehood.NoLimit {
		svc.CPUS = float32(limits.CPUs)
	}
	svc.PidsLimit = limits.PIDs // -1 lifts it here too
	main.Unheld.standIn(&svc)
	for _, m := range spec.Mounts {
		svc.Volumes = append(svc.Volumes, bind(m.Host, m.Container, !m.Writable))
	}
	for _, port := range spec.Ports {
		svc.Ports = append(svc.Ports, types.ServicePortConfig{
			Mode: "ingress", Protocol: cmp.Or(port.Protocol, fumehood.ProtocolTCP), HostIP: "127.0.0.1", Target: uint32(port.Container), //nolint:gosec // validated
			Published: published(port.Host),
		})
	}
	p := &types.Project{
		Name:     spec.Name,
		Services: types.Services{},
		Networks: types.Networks{},
		Volumes:  types.Volumes{"guest": {Name: main.Volume, External: true}},
	}
	switch spec.Network.Mode {
	case "", fumehood.NetworkNone, fumehood.NetworkHost:
		svc.NetworkMode = cmp.Or(spec.Network.Mode, fumehood.NetworkNone)
	case fumehood.NetworkBridge:
		n := types.NetworkConfig{Name: OwnNetwork(spec.Name), Labels: maps.Clone(types.Labels(labels))}
		if main.Subnet.IsValid() {
			n.Ipam.Config = []*types.IPAMPool{{Subnet: main.Subnet.String()}}
		}
		svc.Networks = map[string]*types.ServiceNetworkConfig{ownNetwork: nil}
		p.Networks[ownNetwork] = n
	default:
		svc.Networks = map[string]*types.ServiceNetworkConfig{"outside": nil}
		p.Networks["outside"] = types.NetworkConfig{Name: spec.Network.Mode, External: true}
	}
	p.Services[svc.Name] = svc
	return &Project{project: p, main: svc.Name, serve: map[string]bool{svc.Name: main.Serve}, runtimes: main.Runtimes}
}

// published is a port of the host; empty where the Engine is to choose one.
func published(port int) string {
	if port == 0 {
		return ""
	}
	return strconv.Itoa(port)
}

// bind mounts a path of the host, which must exist.
func bind(host, container string, readOnly bool) types.ServiceVolumeConfig {
	return types.ServiceVolumeConfig{
		Type: types.VolumeTypeBind, Source: host, Target: container, ReadOnly: readOnly,
		Bind: &types.ServiceVolumeBind{CreateHostPath: false},
	}
}

func environment(env map[string]string) types.MappingWithEquals {
	m := types.MappingWithEquals{}
	for k, v := range env {
		m[k] = &v
	}
	return m
}

// ContainerName is the name of the generated project's only container.
func ContainerName(sandbox string) string {
	return fmt.Sprintf("%s-%s-1", sandbox, DefaultService)
}
