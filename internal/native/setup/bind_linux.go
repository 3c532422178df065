package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bind attaches what the user mounts. A mount below another one comes after it. folders are volumes that are folders of
// the root file system: below a mount they are mounts too, since it would hide them.
func (r Root) bind(s sources, folders []string) error {
	type step struct {
		at string
		do func() error
	}
	var steps []step
	for _, at := range folders {
		at = path.Clean("/" + at)
		if !r.covers(at) {
			continue
		}
		m, err := cloneFolder(at)
		if err != nil {
			return &failure{FaultImage, fmt.Errorf("mount the volume %s: %w", at, err)}
		}
		defer m.close()
		steps = append(steps, step{at, func() error {
			if err := m.attachMade(at); err != nil {
				return &failure{FaultMount, fmt.Errorf("mount the volume %s: %w", at, err)}
			}
			return nil
		}})
	}
	for i, m := range r.Mounts {
		steps = append(steps, step{m.Container, func() error {
			if err := s.binds[i].attachMade(m.Container); err != nil {
				return &failure{FaultMount, fmt.Errorf("mount %s: %w", m.Host, err)}
			}
			return nil
		}})
	}
	for i, v := range r.Volumes {
		steps = append(steps, step{v.Container, func() error { return v.attach(s.volumes[i]) }})
	}
	for _, t := range r.Tmpfs {
		steps = append(steps, step{t.Container, t.attach})
	}
	depth := func(at string) int { return strings.Count(path.Clean(at), "/") }
	slices.SortStableFunc(steps, func(a, b step) int { return depth(a.at) - depth(b.at) })
	for _, st := range steps {
		if err := st.do(); err != nil {
			return err
		}
	}
	return nil
}

// covers reports whether the user mounts something above a path.
func (r Root) covers(at string) bool {
	var all []string
	for _, m := range r.Mounts {
		all = append(all, m.Container)
	}
	for _, v := range r.Volumes {
		all = append(all, v.Container)
	}
	for _, t := range r.Tmpfs {
		all = append(all, t.Container)
	}
	return slices.ContainsFunc(all, func(above string) bool { return strings.HasPrefix(at, path.Clean(above)+"/") })
}

// cloneFolder returns another mount of a folder of the root file system, which it makes if it is missing.
func cloneFolder(at string) (mount, error) {
	if err := makeFolder(at); err != nil {
		return mount{}, err
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(unix.AT_FDCWD, at, &how)
	if err != nil {
		return mount{}, &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fd)
	return clone("/proc/self/fd/" + strconv.Itoa(fd))
}

// attach mounts the volume. A writable one gets the owner and mode of the folder at its place. An image's files there are
// an error: Docker would copy them.
func (v Volume) attach(m mount) error {
	var was unix.Stat_t
	err := unix.Stat(v.Container, &was)
	fresh := errors.Is(err, unix.ENOENT)
	if !fresh {
		if err := v.checkEmpty(err); err != nil {
			return err
		}
	}
	if !fresh && v.Writable {
		if err := setOwner(m.fd, int(was.Uid), int(was.Gid), int64(was.Mode&0o7777)); err != nil {
			return err
		}
	}
	if err := m.attachMade(v.Container); err != nil {
		return &failure{FaultMount, fmt.Errorf("mount a volume: %w", err)}
	}
	return nil
}

// checkEmpty returns an error unless the volume's place is an empty folder. err is that of stat(2).
func (v Volume) checkEmpty(err error) error {
	var folder *os.File
	if err == nil {
		folder, err = os.OpenFile(v.Container, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return &failure{FaultMount, fmt.Errorf("mount a volume at %s: %w", v.Container, err)}
	}
	defer folder.Close()
	if _, err := folder.Readdirnames(1); !errors.Is(err, io.EOF) {
		return &failure{FaultFill, fmt.Errorf("mount a volume at %s: the image has files there, which the native provider does not copy", v.Container)}
	}
	return nil
}

// attach mounts the file system.
func (t Tmpfs) attach() error {
	attributes := restricted
	if t.Exec {
		attributes &^= unix.MOUNT_ATTR_NOEXEC
	}
	if t.ReadOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	options := t.Options
	var was unix.Stat_t
	if err := unix.Stat(t.Container, &was); err == nil && !slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "mode=") }) {
		options = append(slices.Clip(options), fmt.Sprintf("mode=%o", was.Mode&0o7777)) // as OCI runtimes do
	}
	m, err := newFS("tmpfs", attributes, options...)
	if err != nil {
		return &failure{FaultMount, err}
	}
	defer m.close()
	if err := m.attachMade(t.Container); err != nil {
		return &failure{FaultMount, err}
	}
	return nil
}

// takeVolumes returns the mounts of r.Volumes, and the other mounts of those that the host has sent. If this process makes
// the volumes, it also sets r.shared. The mounts of this process must be private.
func (r *Root) takeVolumes(passed []mount) (others, volumes []mount, err error) {
	n := len(passed) - len(r.Volumes)
	if len(r.Sizes) > 0 {
		var all []mount
		if all, err = r.makeVolumes(); err != nil {
			return nil, nil, err
		}
		others, volumes = passed, all[:len(r.Volumes)]
		for _, m := range all[len(r.Volumes):] {
			r.shared = append(r.shared, m.fd)
		}
	} else {
		others, volumes = passed[:n], passed[n:]
	}
	for i, v := range r.Volumes {
		if !v.Writable { // before the image's files are seen, whose links could lead to it
			err = errors.Join(err, volumes[i].restrictOne(unix.MOUNT_ATTR_RDONLY))
		}
	}
	return others, volumes, err
}

// makeVolumes makes file systems in memory. It returns the mounts r.Shares, which are not attached to any path.
func (r *Root) makeVolumes() ([]mount, error) {
	all := make([]mount, len(r.Shares))
	for n, size := range r.Sizes {
		m, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, fmt.Sprintf("size=%d", size), "mode=0755")
		if err != nil {
			return nil, err
		}
		err = m.attach(r.Scratch) // only an attached mount can be cloned
		m.close()
		for i, share := range r.Shares {
			if share == n && err == nil {
				all[i], err = clone(r.Scratch)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Unmount(r.Scratch, unix.MNT_DETACH); err != nil {
			return nil, os.NewSyscallError("unmount", err)
		}
	}
	return all, nil
}
