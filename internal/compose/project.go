package compose

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// DefaultService is the name of the service of a sandbox without a Compose project.
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

// capabilities are the most that processes of a service without a program of its own can have; root in it has them all.
// They are the Engine's default set without those that only attackers use: raw sockets, device nodes, chroot, audit
// records, file capabilities and passing on capabilities.
var capabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID",
}

// Project is the plan of a sandbox: all that its services are made of, as pure data. Load and FromSpec are the only ways
// to one. Apply or Members completes it.
type Project struct {
	as      *types.Project // as in the files or the spec; Apply starts from it
	project *types.Project // as it is created
	order   []string       // its services in the order of the files
	main    string         // the default service
	// internal reports whether its networks have no access to the outside.
	internal bool
	settings settings
	serve    map[string]bool            // by service: whether its main process is a guest that serves the host
	forward  map[string][]fumehood.Port // by service: ports that the host forwards connections to
	runtimes Runtimes                   // known runtimes of the daemon
	runner   Runner                     // of CheckPod

	// The rest is empty without files.
	model    map[string]any // the project as merged by compose-go
	gate     hostpath.Gate
	places   places
	notes    []Change // changes and allowed settings, before any policy
	unset    []Unset  // uses of variables that are not set
	warnings []Warning
	content  string // Compose.Content
}

// Labels are the labels of a project's objects, by name.
type Labels = map[string]string

// Types returns the project for the Compose SDK.
func (p *Project) Types() *types.Project { return p.project }

// FromSpec returns the project of a sandbox whose spec has none: a service that only waits, so that the guest becomes its
// main process. Its limits are those of the policy. The spec must be valid and have a
// name, unless only Sources is used.
func FromSpec(spec fumehood.Spec) *Project {
	svc := types.ServiceConfig{
		Name: DefaultService, Image: spec.Image, Entrypoint: types.ShellCommand{"sleep", "infinity"}, Command: types.ShellCommand{},
		User: spec.User, WorkingDir: spec.Dir, Environment: types.MappingWithEquals{},
		ShmSize: types.UnitBytes(spec.ShmSize), // 0 is the Engine's choice, 64 MiB unless its settings differ
		Logging: &types.LoggingConfig{Driver: "json-file", Options: types.Options{"max-size": "1m", "max-file": "1"}},
	}
	for name, value := range spec.Env {
		svc.Environment[name] = &value
	}
	if spec.Limits.PIDs == fumehood.NoLimit {
		svc.PidsLimit = fumehood.NoLimit // an Engine may have a default
	}
	for _, m := range spec.Mounts {
		svc.Volumes = append(svc.Volumes, bind(m.Host, m.Container, !m.Writable))
	}
	for _, text := range spec.Tmpfs {
		t, _ := fumehood.ParseTmpfs(text) // valid
		svc.Tmpfs = append(svc.Tmpfs, boundTmpfs(t, spec.Limits.WithDefaults().Memory).String())
	}
	for _, port := range spec.Ports {
		svc.Ports = append(svc.Ports, types.ServicePortConfig{
			Mode: "ingress", Protocol: cmp.Or(port.Protocol, fumehood.ProtocolTCP), HostIP: "127.0.0.1", Target: uint32(port.Container), //nolint:gosec // validated
			Published: formatPort(port.Host),
		})
	}
	all := &types.Project{Name: spec.Name, Services: types.Services{}, Networks: types.Networks{}}
	switch spec.Network.Mode {
	case "", fumehood.NetworkNone, fumehood.NetworkHost:
		svc.NetworkMode = cmp.Or(spec.Network.Mode, fumehood.NetworkNone)
	case fumehood.NetworkBridge:
		// Its own: on the Engine's bridge, all containers can reach each other.
		svc.Networks = map[string]*types.ServiceNetworkConfig{"default": nil}
		all.Networks["default"] = types.NetworkConfig{Name: objectName(spec.Name, "default")}
	default:
		svc.Networks = map[string]*types.ServiceNetworkConfig{"outside": nil}
		all.Networks["outside"] = types.NetworkConfig{Name: spec.Network.Mode, External: true}
	}
	all.Services[svc.Name] = svc
	return &Project{as: all, project: all, order: []string{svc.Name}, main: svc.Name, settings: settings{keepPorts: true}}
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

// ContainerName returns the name of the only container of a sandbox without a Compose project.
func ContainerName(sandbox string) string {
	return fmt.Sprintf("%s-%s-1", sandbox, DefaultService)
}
