//go:build amd64 || arm64

package native

import (
	"path"
	"slices"

	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// planImageVolumes adds the volumes of the service's image. They are writable even if the root file system is not.
func (s *service) planImageVolumes(m *compose.Member) {
	for dir := range s.image.Config.Volumes {
		at := path.Clean("/" + dir)
		switch {
		case !m.ReadOnly:
			s.config.Volumes = append(s.config.Volumes, dir)
		case !slices.ContainsFunc(m.Volumes, func(v compose.Volume) bool { return v.Container == at }):
			m.Volumes = append(m.Volumes, compose.Volume{Container: at, Writable: true})
		}
	}
}

// planVolumes determines the volumes of the project. A writable one that only one service mounts is a folder of its root
// file system, with the image's files. Others are in memory: the first process of the first service makes them.
func (sb *sandbox) planVolumes() {
	users := map[string]int{}
	for _, s := range sb.services {
		for _, v := range s.main.Volumes() {
			users[v.Name]++
		}
	}
	first := sb.services[0].config.Root
	numbers := map[string]int{}
	for _, s := range sb.services {
		root := s.config.Root
		for _, v := range s.main.Volumes() {
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
			first.Sizes[n] = max(first.Sizes[n], s.disk)
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
