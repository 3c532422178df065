//go:build amd64 || arm64

package native

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/seccomp"
)

// ociSpec describes the service for an OCI runtime. It has the same isolation as one without a runtime. The first
// process begins as root with all of the sandbox's capabilities. It gives them up if its user is another one.
func (s *service) ociSpec() (*specs.Spec, error) {
	var names []string
	for name := range capabilities {
		names = append(names, name)
	}
	slices.Sort(names)
	load := s.sb.p.profile
	if s.profile != "" {
		load = func() (string, error) { return seccomp.Load(s.profile) }
	}
	profile, err := load()
	if err != nil {
		return nil, err
	}
	filter, err := seccomp.OCI(profile, names)
	if err != nil {
		return nil, err
	}
	root := s.config.Root
	spec := &specs.Spec{
		Version:  "1.0.2", // which old runtimes know
		Hostname: s.config.Hostname,
		Root:     &specs.Root{Path: root.RootPoint()},
		Process: &specs.Process{
			Args: []string{s.oci.guest(), "join"}, Cwd: "/", NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names},
		},
		Mounts: s.ociMounts(),
		Linux: &specs.Linux{
			CgroupsPath: "/" + cgroupParent + "/" + cgroupName(s.sb.folder), Resources: &specs.LinuxResources{Devices: ociDevices()},
			MaskedPaths: setup.Hidden, Sysctl: setup.Sysctls(false), ReadonlyPaths: setup.Fixed, Seccomp: filter,
		},
	}
	for _, kind := range []specs.LinuxNamespaceType{
		specs.MountNamespace, specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.NetworkNamespace, specs.CgroupNamespace,
	} {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
	return spec, nil
}

// ociMounts returns the sandbox's mounts in their order. A mount below another one comes after it.
func (s *service) ociMounts() []specs.Mount {
	root := s.config.Root
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", fmt.Sprintf("size=%d", cmp.Or(root.Shm, setup.ShmSize))}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	cgroups := specs.Mount{Destination: cgroupRoot, Type: "bind", Source: root.CgroupsPoint(), Options: []string{"rbind", "rprivate", "nosuid", "noexec", "nodev", "ro"}}
	if s.oci.gvisor { // it has its own
		cgroups = specs.Mount{Destination: cgroupRoot, Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "ro"}}
	}
	mounts = append(mounts, cgroups)
	var binds []specs.Mount
	for i, m := range root.Mounts {
		options := []string{"rbind", "rprivate", "nosuid", "nodev"}
		if !m.Writable {
			options = append(options, "ro")
		}
		binds = append(binds, specs.Mount{Destination: m.Container, Type: "bind", Source: root.MountPoint(i), Options: options})
	}
	for _, t := range root.Tmpfs {
		binds = append(binds, specs.Mount{Destination: t.Container, Type: "tmpfs", Source: "tmpfs", Options: t.MountOptions()})
	}
	depth := func(m specs.Mount) int { return strings.Count(path.Clean(m.Destination), "/") }
	slices.SortStableFunc(binds, func(a, b specs.Mount) int { return depth(a) - depth(b) })
	// The guest is last: nothing covers it.
	return append(append(mounts, binds...), specs.Mount{
		Destination: setup.GuestDir, Type: "bind", Source: root.Guest, Options: []string{"bind", "rprivate", "nosuid", "nodev", "ro"},
	})
}

// ociDevices returns the rules of deviceRules.
func ociDevices() (rules []specs.LinuxDeviceCgroup) {
	for _, r := range deviceRules() {
		rule := specs.LinuxDeviceCgroup{Allow: r.Allow, Type: string(r.Type), Access: string(r.Permissions)}
		for _, n := range []struct {
			is int64
			to **int64
		}{{r.Major, &rule.Major}, {r.Minor, &rule.Minor}} {
			if n.is >= 0 { // not a wildcard
				*n.to = &n.is
			}
		}
		rules = append(rules, rule)
	}
	return rules
}
