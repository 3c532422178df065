package setup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// noOverlay is the error of a kernel that does not mount the layers as an overlay.
type noOverlay struct{ error }

func (n noOverlay) Unwrap() error { return n.error }

// canCopy reports whether err means that copies of the layers would help.
func canCopy(err error) bool {
	_, ok := errors.AsType[noOverlay](err)
	return ok && (errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL))
}

// copyLayers copies the layers to Scratch/root, and mounts that on itself.
func (r Root) copyLayers() error {
	root := filepath.Join(r.Scratch, "root")
	for _, layer := range r.attached {
		c := copier{from: layer, to: root, links: map[uint64]string{}, opaque: "trusted.overlay.opaque"}
		if r.userNamespace {
			c.opaque = "user.overlay.opaque"
		}
		if err := c.run(); err != nil {
			return fmt.Errorf("copy the image's layers: %w", err)
		}
	}
	m, err := clone(root)
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.restrict(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	return m.attach(root)
}

// copier copies a layer onto the copies of lower ones. Nobody else changes the two trees. Each folder of a copy is checked
// or made before what is in it, so no link is followed.
type copier struct {
	from, to string
	links    map[uint64]string // by inode: the copies of files with several names
	opaque   string            // the attribute of a folder that hides the lower ones
	folders  []func() error    // set the times of folders, which their files change
}

func (c *copier) run() error {
	err := filepath.WalkDir(c.from, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return c.copy(path, c.to+strings.TrimPrefix(path, c.from))
	})
	for _, setTimes := range c.folders {
		err = errors.Join(err, setTimes())
	}
	return err
}

// copy copies what is at a path of the layer, without what is in it.
func (c *copier) copy(from, to string) error {
	if to == c.to { // an overlay does not have the attributes of the layers' top folders either
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: from, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR || c.hides(from, to) {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	first, linked := c.links[st.Ino]
	var err error
	switch {
	case kind == unix.S_IFCHR || kind == unix.S_IFBLK: // a whiteout
		return nil
	case linked:
		return os.Link(first, to)
	case kind == unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); errors.Is(err, fs.ErrExist) { // it is merged
			err = nil
		}
	case kind == unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case kind == unix.S_IFIFO:
		err = unix.Mkfifo(to, 0o600)
	default:
		err = copyFile(from, to)
	}
	if err != nil {
		return err
	}
	if st.Nlink > 1 && kind != unix.S_IFDIR {
		c.links[st.Ino] = to
	}
	return c.describe(from, to, st)
}

// hides reports whether a folder of the layer replaces what is in its place, rather than being merged with it.
func (c *copier) hides(from, to string) bool {
	if info, err := os.Lstat(to); err == nil && !info.IsDir() {
		return true
	}
	opaque := make([]byte, 1)
	n, _ := unix.Lgetxattr(from, c.opaque, opaque) // it usually has none
	return n == 1 && opaque[0] == 'y'
}

// copyFile copies the content of a file.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// describe sets owner, mode, attributes and times. Capabilities of files have no effect in a sandbox, and are left out.
func (c *copier) describe(from, to string, st unix.Stat_t) error {
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: to, Err: err}
		}
		if err := copyAttributes(from, to); err != nil {
			return err
		}
	}
	setTimes := func() error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		c.folders = append(c.folders, setTimes)
		return nil
	}
	return setTimes()
}

// maxAttributes bounds the names, and each value, of the attributes of a file, in bytes.
const maxAttributes = 64 << 10

// copyAttributes copies the attributes that users may set.
func copyAttributes(from, to string) error {
	names := make([]byte, maxAttributes)
	n, err := unix.Llistxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: from, Err: err}
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		value := make([]byte, maxAttributes)
		n, err := unix.Lgetxattr(from, name, value)
		if err == nil {
			err = unix.Lsetxattr(to, name, value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) { // a tmpfs before Linux 6.6
			return &os.PathError{Op: "copy attribute " + name + " to", Path: to, Err: err}
		}
	}
	return nil
}
