//go:build amd64 || arm64

package native

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// adopt makes the service one of a project.
func (s *service) adopt(m compose.Member, limits fumehood.Limits) (err error) {
	root := s.config.Root
	s.config.Hostname, s.config.Hosts, s.config.Capabilities = m.Hostname, m.Hosts, 0
	for _, name := range m.Capabilities {
		s.config.Capabilities |= 1 << programCapabilities["CAP_"+name]
	}
	s.config.Env = slices.DeleteFunc(s.config.Env, func(kv []byte) bool {
		name, _, _ := strings.Cut(string(kv), "=")
		return slices.Contains(m.Unset, name)
	})
	root.ReadOnly, root.Shm = m.ReadOnly, m.Shm
	for _, t := range m.Tmpfs {
		root.Tmpfs = append(root.Tmpfs, setup.Tmpfs(compose.BoundTmpfs(t, limits.Memory)))
	}
	if m.ReadOnly { // the image's volumes are writable all the same
		for _, dir := range s.config.Volumes {
			at := path.Clean("/" + dir)
			if !slices.ContainsFunc(m.Volumes, func(v compose.Volume) bool { return v.Container == at }) {
				m.Volumes = append(m.Volumes, compose.Volume{Container: at, Writable: true})
			}
		}
		s.config.Volumes = nil
	}
	s.main = newProgram(s, m, memoryDisk(limits))
	if s.config.Capabilities&(1<<unix.CAP_SYS_CHROOT) != 0 {
		s.config.Seccomp, err = s.sb.p.filterOf(filterKey{s.profile, true})
	}
	return err
}

// planVolumes determines the volumes of the project. A writable one that only one service mounts is a folder of its root
// file system, with the image's files. Others are in memory: the first process of the first service makes them.
func (sb *sandbox) planVolumes() {
	users := map[string]int{}
	for _, s := range sb.services {
		for _, v := range s.main.volumes() {
			users[v.Name]++
		}
	}
	first := sb.services[0].config.Root
	numbers := map[string]int{}
	for _, s := range sb.services {
		root := s.config.Root
		for _, v := range s.main.volumes() {
			if v.Writable && !root.ReadOnly && (v.Name == "" || users[v.Name] == 1) {
				s.config.Volumes = append(s.config.Volumes, v.Container)
				continue
			}
			n, ok := numbers[v.Name]
			if !ok || v.Name == "" {
				n = len(first.Sizes)
				numbers[v.Name] = n
				first.Sizes = append(first.Sizes, 0)
			}
			first.Sizes[n] = max(first.Sizes[n], s.main.disk)
			first.Shares = append(first.Shares, n)
			root.Volumes = append(root.Volumes, setup.Volume{Container: v.Container, Writable: v.Writable})
		}
	}
}

// spread gives the volumes that the first service's process has made to the other services.
func (sb *sandbox) spread() {
	made := sb.services[0].init.volumes
	for _, s := range sb.services[1:] {
		n := min(len(s.config.Root.Volumes), len(made))
		s.volumes, made = made[:n], made[n:]
	}
}
