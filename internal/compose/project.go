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

// GuestDir is the mount point of the guest's volume. GuestProgram is the path of the guest in it.
const (
	GuestDir     = "/.fumehood"
	GuestProgram = GuestDir + "/guest"
	// ReadableGuest is the same program in a file that every user may read. gVisor can run only such a file.
	ReadableGuest = GuestDir + "/guest-readable"
	// SocketDir is the mount point of the host's folder with its sockets.
	SocketDir = GuestDir + "/host"
)

// capabilities are the most that a generated service's processes can have; root in it has them all. They are the
// Engine's default set without those that only attackers use: raw sockets, device nodes, chroot, audit records, file
// capabilities and passing on capabilities.
var capabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID",
}

// Project is a Compose project. It is either generated, or loaded; a loaded one can be created after Apply.
type Project struct {
	project *types.Project
	main    string                     // the default service
	serve   map[string]bool            // by service: whether its main process is a guest that serves the host
	forward map[string][]fumehood.Port // by service: ports that the host forwards connections to

	runtimes Runtimes // known runtimes of the daemon

	*loaded // nil if generated
}

// Labels are the labels of a project's objects, by name.
type Labels = map[string]string

// Main configures the main process and the network of a generated service.
type Main struct {
	Volume string // the name of the guest's volume
	Serve  bool   // it serves the host over its standard input and output; otherwise it only waits
	// Sockets is the host folder with the sockets for guests; empty means none.
	Sockets string
	// Version is the version of the Compose SDK.
	Version string
	// ConfigFile is the path where the project will be written; empty if it is not.
	ConfigFile string
	Unheld     Unheld
	// Runtimes are the daemon's runtimes.
	Runtimes Runtimes
	// Subnet is the subnet of the network for fumehood.NetworkBridge. If it is the zero value, the Engine chooses.
	Subnet netip.Prefix
}

// ownNetwork is the key of a generated project's own network.
const ownNetwork = "default"

// Types returns the project for the Compose SDK.
func (p *Project) Types() *types.Project { return p.project }

// OwnNetworkSize is the number of addresses that an OwnNetwork needs: the network's, its gateway's, its broadcast
// address and its container's.
const OwnNetworkSize = 4

// OwnNetwork returns the name of the network that a sandbox with fumehood.NetworkBridge gets. It does not use the
// Engine's bridge, where all containers can reach each other.
func OwnNetwork(sandbox string) string { return objectName(sandbox, ownNetwork) }

// Generate returns the one-service project for a spec, which must be valid and have an image and a name. It is pure.
func Generate(spec fumehood.Spec, main Main, labels Labels) *Project {
	limits := spec.Limits.WithDefaults()
	grace := types.Duration(time.Second)
	svc := types.ServiceConfig{
		Name:          DefaultService,
		ContainerName: ContainerName(spec.Name),
		Image:         spec.Image,
		PullPolicy:    types.PullPolicyNever, // the provider has pulled it: the SDK must not contact a registry
		Entrypoint:    types.ShellCommand{main.Runtimes.Guest(spec.Runtime)},
		Command:       types.ShellCommand{},
		User:          spec.User,
		Runtime:       spec.Runtime,
		WorkingDir:    spec.Dir,
		ShmSize:       types.UnitBytes(spec.ShmSize), // 0 is the Engine's choice, 64 MiB unless its settings differ
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
		// The guest does not stop on a signal, since the code under test could send one too. So the daemon kills it
		// right away.
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
		// Its output is the protocol with the host, which must not be logged.
		svc.Logging = &types.LoggingConfig{Driver: "none"}
		svc.Labels = svc.Labels.Add(owner.LabelMain, owner.MainGuest)
	}
	if main.Sockets != "" {
		svc.Volumes = append(svc.Volumes, bind(main.Sockets, SocketDir, true))
	}
	if limits.Memory != fumehood.NoLimit {
		svc.MemLimit = types.UnitBytes(limits.Memory)
		svc.MemSwapLimit = types.UnitBytes(limits.Memory) // equal, so no additional swap
	}
	if limits.CPUs != fumehood.NoLimit {
		svc.CPUS = float32(limits.CPUs)
	}
	svc.PidsLimit = limits.PIDs // -1 means no limit here too
	main.Unheld.standIn(&svc)
	for _, m := range spec.Mounts {
		svc.Volumes = append(svc.Volumes, bind(m.Host, m.Container, !m.Writable))
	}
	for _, t := range TmpfsOf(spec) {
		svc.Tmpfs = append(svc.Tmpfs, t.String())
	}
	for _, port := range spec.Ports {
		svc.Ports = append(svc.Ports, types.ServicePortConfig{
			Mode: "ingress", Protocol: cmp.Or(port.Protocol, fumehood.ProtocolTCP), HostIP: "127.0.0.1", Target: uint32(port.Container), //nolint:gosec // validated
			Published: formatPort(port.Host),
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

// formatPort formats a host port. It returns "" for 0, so that the Engine chooses one.
func formatPort(port int) string {
	if port == 0 {
		return ""
	}
	return strconv.Itoa(port)
}

// bind returns a mount of a host path, which must exist.
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

// ContainerName returns the name of a generated project's only container.
func ContainerName(sandbox string) string {
	return fmt.Sprintf("%s-%s-1", sandbox, DefaultService)
}
