//go:build amd64 || arm64

package native

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/setup"
)

// adopt makes the service one of a project.
func (s *service) adopt(m compose.Member, limits fumehood.Limits) {
	root := s.config.Root
	s.config.Hostname, s.config.Hosts, s.config.Capabilities = m.Hostname, m.Hosts, 0
	for _, name := range m.Capabilities {
		s.config.Capabilities |= 1 << capabilities["CAP_"+name]
	}
	s.config.Env = slices.DeleteFunc(s.config.Env, func(kv []byte) bool {
		name, _, _ := strings.Cut(string(kv), "=")
		return slices.Contains(m.Unset, name)
	})
	root.ReadOnly, root.Shm = m.ReadOnly, m.Shm
	for _, t := range m.Tmpfs {
		root.Tmpfs = append(root.Tmpfs, setup.Tmpfs(t))
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
}

// makeVolumes makes the volumes of the project. A writable one that only one service mounts is a folder of its root file
// system, with the image's files. Others are in memory.
func (sb *sandbox) makeVolumes() error {
	users := map[string]int{}
	for _, s := range sb.services {
		for _, v := range s.main.volumes() {
			users[v.Name]++
		}
	}
	var sizes []int64
	var counts []int
	numbers := map[string]int{}
	of := map[*service][]int{} // the numbers of a service's volumes
	for _, s := range sb.services {
		root := s.config.Root
		for _, v := range s.main.volumes() {
			if v.Writable && !root.ReadOnly && (v.Name == "" || users[v.Name] == 1) {
				s.config.Volumes = append(s.config.Volumes, v.Container)
				continue
			}
			n, ok := numbers[v.Name]
			if !ok || v.Name == "" {
				n = len(sizes)
				numbers[v.Name] = n
				sizes, counts = append(sizes, 0), append(counts, 0)
			}
			sizes[n] = max(sizes[n], s.main.disk)
			counts[n]++
			of[s] = append(of[s], n)
			root.Volumes = append(root.Volumes, setup.Volume{Container: v.Container, Writable: v.Writable})
		}
	}
	switch {
	case len(sizes) == 0:
		return nil
	case sb.p.inUserNamespace():
		return &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("volumes that are read-only, or mounted twice, cannot be in a user namespace"), Hint: "use the docker provider",
		}
	}
	return inThread(func() error {
		all, err := setup.Volumes(sb.folder, sizes, counts)
		if err != nil {
			return err
		}
		for _, s := range sb.services {
			for _, n := range of[s] {
				s.volumes, all[n] = append(s.volumes, all[n][0]), all[n][1:]
			}
		}
		return nil
	})
}
