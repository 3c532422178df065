package setup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sources are mounts that are made while the host's files are accessible.
type sources struct {
	guest, proc, sys mount
	sockets          mount            // of Root.Sockets, if that is set
	cgroups          map[string]mount // by name
	devices          map[string]mount // by name; only in a user namespace, which cannot make nodes
	binds            []mount          // in the order of Root.Mounts
	layers           []mount          // in the order of Root.Layers; only if the host passed them
	volumes          []mount          // in the order of Root.Volumes
}

// open makes the mounts. passed are those that the host has sent.
func (r Root) open(passed []mount) (s sources, err error) {
	if r.Passed {
		s, err = r.unpack(passed)
	} else {
		s, err = r.openFiles()
	}
	if err != nil {
		return s, err
	}
	// In a user namespace the kernel requires that the host's are still visible.
	if s.proc, err = newFS("proc", restricted); err != nil {
		return s, err
	}
	if s.sys, err = newFS("sysfs", restricted|unix.MOUNT_ATTR_RDONLY); err != nil {
		return s, err
	}
	if err := r.openCgroups(&s); err != nil {
		return s, err
	}
	if r.userNamespace {
		err = s.openDevices()
	}
	return s, err
}

// openFiles makes the mounts of the host's files.
func (r Root) openFiles() (s sources, err error) {
	if s.guest, err = clone(r.Guest); err != nil {
		return s, err
	}
	if err := s.guest.restrict(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY); err != nil {
		return s, err
	}
	if r.Sockets != "" {
		if s.sockets, err = clone(r.Sockets); err != nil {
			return s, err
		}
		if err := s.sockets.restrict(restricted | unix.MOUNT_ATTR_RDONLY); err != nil {
			return s, err
		}
	}
	return s, r.openBinds(&s)
}

// openCgroups makes the mounts of the sandbox's control groups.
func (r Root) openCgroups(s *sources) (err error) {
	s.cgroups = map[string]mount{}
	for name, folder := range r.Cgroups {
		if s.cgroups[name], err = clone(folder); err != nil {
			return err
		}
		if err := s.cgroups[name].restrict(restricted | unix.MOUNT_ATTR_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

// openBinds makes the mounts that the user wants.
func (r Root) openBinds(s *sources) error {
	for _, m := range r.Mounts {
		bind, err := cloneChecked(m)
		if err != nil {
			return &failure{FaultMount, err}
		}
		s.binds = append(s.binds, bind)
		attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
		if !m.Writable {
			attributes |= unix.MOUNT_ATTR_RDONLY
		}
		if err := bind.restrict(attributes); err != nil {
			return &failure{FaultMount, fmt.Errorf("%s: %w", m.Host, err)}
		}
	}
	return nil
}

func (s sources) close() {
	for _, group := range []map[string]mount{s.cgroups, s.devices} {
		for _, m := range group {
			m.close()
		}
	}
	for _, m := range slices.Concat(s.binds, s.layers, s.volumes, []mount{s.guest, s.sockets, s.proc, s.sys}) {
		m.close()
	}
}

// mount mounts the root file system at Scratch/root. layers are mounts of the layers, if the host has sent them.
func (r *Root) mount(layers []mount) error {
	if err := r.mountWritable(); err != nil {
		return fmt.Errorf("mount the writable layer: %w", err)
	}
	for _, name := range []string{"empty", "upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(r.Scratch, name), 0o755); err != nil {
			return err
		}
	}
	return r.overlay(layers)
}

// enter makes the root file system the root of this process. Afterwards the host's files are gone.
func (r *Root) enter(s sources) error {
	err := r.mount(s.layers)
	if canCopy(err) {
		r.copied, err = true, r.copyLayers()
	}
	if err != nil {
		return err
	}
	if err := os.Chdir(filepath.Join(r.Scratch, "root")); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is now mounted over the new one
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("unmount the host's root", err)
	}
	return os.Chdir("/")
}

// mountWritable mounts the writable layer at Scratch.
func (r Root) mountWritable() error {
	if !r.OnDisk {
		size := "size=" + strconv.FormatInt(r.Size, 10)
		return unix.Mount("tmpfs", r.Scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, size+",mode=0700")
	}
	defer r.disk.close()
	return r.disk.attach(r.Scratch)
}

// overlay mounts the layers, with the writable one on top, at Scratch/root. The folders are given to the kernel as
// descriptors: paths may contain separators, and 127 of them do not fit into the options.
func (r *Root) overlay(passed []mount) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	open := func(folder string) (string, error) {
		fd, err := unix.Open(folder, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return "", &os.PathError{Op: "open", Path: folder, Err: err}
		}
		fds = append(fds, fd)
		return strconv.Itoa(fd), nil
	}
	layers := slices.Clone(r.Layers)
	for i, m := range passed { // older kernels accept only attached mounts
		layers[i] = filepath.Join(r.Scratch, "layer"+strconv.Itoa(i))
		if err := os.Mkdir(layers[i], 0o700); err != nil {
			return err
		}
		if err := m.attach(layers[i]); err != nil {
			return err
		}
	}
	if len(layers) == 0 {
		layers = []string{filepath.Join(r.Scratch, "empty")}
	}
	r.attached = slices.Clone(layers)
	slices.Reverse(layers) // the topmost first
	folders := append(layers, filepath.Join(r.Scratch, "upper"), filepath.Join(r.Scratch, "work"))
	names := make([]string, len(folders))
	for i, folder := range folders {
		var err error
		if names[i], err = open(folder); err != nil {
			return err
		}
	}
	if err := os.Chdir("/proc/self/fd"); err != nil {
		return err
	}
	n := len(layers)
	options := "lowerdir=" + strings.Join(names[:n], ":") + ",upperdir=" + names[n] + ",workdir=" + names[n+1]
	if r.userNamespace {
		options += ",userxattr" // others need root on the host
		// An overlay notes in them that a folder was replaced.
		if err := unix.Setxattr(filepath.Join(r.Scratch, "upper"), "user.overlay.test", nil, 0); err != nil {
			return fmt.Errorf("set attributes in the writable layer, whose file system may have none before Linux 6.6: %w", noOverlay{unix.EINVAL})
		}
	}
	if err := unix.Mount("overlay", filepath.Join(r.Scratch, "root"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the image's %d layers as an overlay: %w", n, noOverlay{err})
	}
	return nil
}

// Hidden and Fixed are paths of the kernel's file systems that Docker hides or makes read-only (oci/defaults.go in moby).
var (
	Hidden = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	Fixed = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// makeTargets makes the folders in the new root where the kernel's file systems and the guest are mounted.
func makeTargets() error {
	for _, dir := range []string{"/proc", "/sys", "/dev", GuestDir} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return &failure{FaultImage, err}
		}
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return &failure{FaultImage, fmt.Errorf("%s is not a directory in the image", dir)}
		}
	}
	return nil
}

// fill mounts everything else in the new root.
func (r Root) fill(s sources, oneUser bool) error {
	if err := makeTargets(); err != nil {
		return err
	}
	for _, m := range []struct {
		mount
		at string
	}{{s.proc, "/proc"}, {s.sys, "/sys"}, {s.guest, GuestDir}} {
		if err := m.attach(m.at); err != nil {
			return err
		}
	}
	if err := openPorts(r.userNamespace); err != nil {
		return err
	}
	if r.Sockets != "" {
		if err := s.sockets.attach(SocketDir); err != nil {
			return err
		}
	}
	if err := makeDev(s.devices, oneUser, cmp.Or(r.Shm, ShmSize)); err != nil {
		return err
	}
	if err := attachCgroups(s.cgroups, cgroupRoot); err != nil {
		return err
	}
	for _, at := range Hidden {
		if err := hide(at); err != nil {
			return err
		}
	}
	for _, at := range Fixed {
		if err := fix(at); err != nil {
			return err
		}
	}
	return fix(guestProcess)
}

// guestProcess is what the kernel shows of the guest. Root in the sandbox could write there that the guest is to be killed first
// when memory runs out.
const guestProcess = "/proc/1"

// cgroupRoot is where control groups are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// attachCgroups mounts the sandbox's own control groups in a folder, read-only.
func attachCgroups(groups map[string]mount, folder string) error {
	if top, ok := groups[""]; ok { // version 2; the others are in it
		err := top.attach(folder)
		for name, m := range groups {
			if err == nil && name != "" {
				err = m.attach(path.Join(folder, name))
			}
		}
		return err
	}
	if len(groups) == 0 {
		return nil
	}
	top, err := newFS("tmpfs", restricted, "size=64k", "mode=0755")
	if err != nil {
		return err
	}
	defer top.close()
	if err := top.attach(folder); err != nil {
		return err
	}
	for name, m := range groups {
		at := path.Join(folder, name)
		if err := os.Mkdir(at, 0o755); err != nil { //nolint:gosec // every user may read it
			return err
		}
		if err := m.attach(at); err != nil {
			return err
		}
	}
	return top.restrictOne(unix.MOUNT_ATTR_RDONLY)
}
