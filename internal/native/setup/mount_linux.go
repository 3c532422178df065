package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	noSuid     = unix.MOUNT_ATTR_NOSUID
	restricted = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
)

// newFS mounts a new file system. An option is "name=value" or "name".
func newFS(kind string, attributes int, options ...string) (mount, error) {
	fail := func(err error) (mount, error) { return mount{}, fmt.Errorf("mount %s: %w", kind, err) }
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fs)
	for _, option := range options {
		name, value, has := strings.Cut(option, "=")
		if has {
			err = unix.FsconfigSetString(fs, name, value)
		} else {
			err = unix.FsconfigSetFlag(fs, name)
		}
		if err != nil {
			return fail(fmt.Errorf("option %s: %w", option, err))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fail(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return fail(err)
	}
	return mount{kind, fd}, nil
}

// MountDisk returns a mount of the ext4 on a device, which is not attached to any path.
func MountDisk(device string) (*os.File, error) {
	// Without noinit_itable, the kernel writes the tables of inodes in the background. With nobarrier, fsync and the last
	// unmount do not wait for the host's disk: the files need not outlive a crash of the host.
	m, err := newFS("ext4", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "source="+device, "errors=remount-ro", "noinit_itable", "nobarrier")
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(m.fd), "disk"), nil //nolint:gosec // not negative
}

// clone returns another mount of a file or folder, with the mounts below it.
func clone(name string) (mount, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return mount{}, &os.PathError{Op: "open_tree", Path: name, Err: err}
	}
	return mount{name, fd}, nil
}

// cloneChecked is clone for a file that the host has checked. It must still be the same file.
func cloneChecked(m Mount) (mount, error) {
	f, err := unix.Open(m.Host, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return mount{}, &os.PathError{Op: "open", Path: m.Host, Err: err}
	}
	defer unix.Close(f)
	var st unix.Stat_t
	if err := unix.Fstat(f, &st); err != nil {
		return mount{}, &os.PathError{Op: "stat", Path: m.Host, Err: err}
	}
	if st.Dev != m.Device || st.Ino != m.Inode {
		return mount{}, fmt.Errorf("%s is not what was checked: the path was changed meanwhile", m.Host)
	}
	fd, err := unix.OpenTree(f, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return mount{}, &os.PathError{Op: "open_tree", Path: m.Host, Err: err}
	}
	return mount{m.Host, fd}, nil
}

// restrict sets attributes of the mount and of those below it.
func (m mount) restrict(attributes uint64) error {
	err := unix.MountSetattr(m.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE})
	return os.NewSyscallError("mount_setattr", err)
}

// isFolder reports whether a folder is mounted, and not a file.
func (m mount) isFolder() (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// attach mounts at an existing path. Links are not followed.
func (m mount) attach(at string) error {
	target, err := unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(target)
	return m.attachTo(target, at)
}

func (m mount) attachTo(target int, at string) error {
	if err := unix.MoveMount(m.fd, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "mount " + m.name + " at", Path: at, Err: err}
	}
	return nil
}

// attachMade is attach for a path that is made if it is missing. Links are followed: they stay in the sandbox's root
// file system. They must not lead to a reserved path.
func (m mount) attachMade(at string) error {
	if err := m.makeTarget(at); err != nil {
		return err
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	target, err := unix.Openat2(unix.AT_FDCWD, at, &how)
	if err != nil {
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(target)
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(target))
	if err != nil {
		return err
	}
	if Reserved(real) {
		return fmt.Errorf("%s leads to %s, which is reserved", at, real)
	}
	return m.attachTo(target, at)
}

// makeTarget makes the path where the mount will be attached, if it is missing. Links are followed.
func (m mount) makeTarget(at string) error {
	folder, err := m.isFolder()
	if err != nil {
		return err
	}
	if folder {
		return makeFolder(at)
	}
	return makeFile(at)
}

// makeFile makes an empty file, and its folder, if there is nothing.
func makeFile(at string) error {
	if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	at, err := followLinks(at)
	if err != nil {
		return err
	}
	if err := makeFolder(path.Dir(at)); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as the Engine does
	if err != nil {
		return err
	}
	return f.Close()
}

// close gives up the mount; it stays where it is attached. The zero value is no mount.
func (m mount) close() {
	if m.name != "" {
		_ = unix.Close(m.fd) // nothing was written
	}
}

// hide mounts over a path so that its content is not accessible. A missing path is fine.
func hide(at string) error {
	target, err := unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(target)
	var st unix.Stat_t
	if err := unix.Fstat(target, &st); err != nil {
		return &os.PathError{Op: "stat", Path: at, Err: err}
	}
	var over mount
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		over, err = newFS("tmpfs", restricted|unix.MOUNT_ATTR_RDONLY, "size=4096", "nr_inodes=1", "mode=0555")
	} else {
		over, err = clone("/dev/null")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", at, err)
	}
	defer over.close()
	return over.attachTo(target, at)
}

// fix makes a path read-only, with what is below it. A missing path is fine.
func fix(at string) error {
	m, err := clone(at)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.restrict(restricted | unix.MOUNT_ATTR_RDONLY); err != nil {
		return err
	}
	return m.attach(at)
}

// restrictOne sets attributes of the mount alone.
func (m mount) restrictOne(attributes uint64) error { return m.restrictAt("", attributes) }

func (m mount) restrictAt(path string, attributes uint64) error {
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(m.fd, path, unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attributes}))
}
