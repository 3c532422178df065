package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mkdirFor is Mkdir for a directory of another user, whose programs may change the path meanwhile. The directories that
// it creates belong to that user. With parents, an existing one of root at path is given to the user if it is empty. It
// follows a link only if no one but root, or this process's user, could have made it: any other is EACCES. Each
// directory is opened in the one before and changed by its descriptor, so that nothing else can take its place.
func mkdirFor(path string, mode fs.FileMode, parents bool, uid, gid int) error {
	d := &descent{todo: elements(path), uid: uid, gid: gid, mode: mode, parents: parents}
	defer d.leave(0)
	if err := d.openRoot(path); err != nil {
		return err
	}
	for len(d.todo) > 0 {
		if d.steps++; d.steps > maxSteps {
			return syscall.ELOOP
		}
		if err := d.step(); err != nil {
			return err
		}
	}
	if d.made {
		return nil
	}
	if !parents {
		return syscall.EEXIST
	}
	return d.claim()
}

// maxSteps limits the elements of a path with those of its links, as the kernel's limit of 4096 bytes does, and how often
// one is looked at again.
const maxSteps = 4 << 10

// descent follows a path from the root directory on.
type descent struct {
	at       []floor  // the directories on the way, each in the one before
	todo     []string // what is left of the path
	links    int      // that were followed
	steps    int
	made     bool // the last directory is a new one
	uid, gid int
	mode     fs.FileMode // of the last directory
	parents  bool
}

// floor is a directory on the way.
type floor struct {
	*os.Root
	trusted bool // only root, or this process's user, can change what is in it and above it
}

// elements returns the names in a path.
func elements(path string) (names []string) {
	for name := range strings.SplitSeq(filepath.ToSlash(path[len(filepath.VolumeName(path)):]), "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// openRoot opens the root directory of an absolute path.
func (d *descent) openRoot(path string) error {
	top, err := os.OpenRoot(filepath.VolumeName(path) + string(filepath.Separator))
	if err != nil {
		return err
	}
	return d.enter(top, true)
}

// leave closes all directories on the way but the first n.
func (d *descent) leave(n int) {
	for _, f := range d.at[n:] {
		_ = f.Close()
	}
	d.at = d.at[:n]
}

// enter adds an open directory to those on the way.
func (d *descent) enter(dir *os.Root, above bool) error {
	info, err := dir.Stat(".")
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	d.at = append(d.at, floor{dir, above && ours(info) && info.Mode().Perm()&0o022 == 0})
	return nil
}

// ours reports whether a file belongs to root or to this process's user.
func ours(info fs.FileInfo) bool {
	uid, _ := OwnerOf(info)
	return uid == 0 || uid == os.Geteuid()
}

// step enters the next directory of the path, or follows a link.
func (d *descent) step() error {
	name, here := d.todo[0], d.at[len(d.at)-1]
	if name == ".." {
		d.todo, d.made = d.todo[1:], false
		d.leave(max(1, len(d.at)-1))
		return nil
	}
	info, err := here.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.create(here, name)
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return d.follow(here, name, info)
	case !info.IsDir():
		return syscall.ENOTDIR
	}
	d.todo, d.made = d.todo[1:], false
	return d.open(here, name, info)
}

// open enters the directory that was described.
func (d *descent) open(here floor, name string, described fs.FileInfo) error {
	dir, err := here.OpenRoot(name)
	if err != nil {
		return err
	}
	if now, err := dir.Stat("."); err != nil || !os.SameFile(now, described) {
		return errors.Join(replacedError(name), err, dir.Close())
	}
	return d.enter(dir, here.trusted)
}

// replacedError returns the error of a path that somebody changes meanwhile.
func replacedError(name string) error { return fmt.Errorf("%w: %s was replaced", syscall.EACCES, name) }

// follow puts the target of a link in its place.
func (d *descent) follow(here floor, name string, info fs.FileInfo) error {
	if !here.trusted || !ours(info) {
		return fmt.Errorf("%w: %s is a link that another user may have made", syscall.EACCES, name)
	}
	target, err := here.Readlink(name)
	if err != nil {
		return err
	}
	if d.links++; d.links > maxLinks {
		return syscall.ELOOP
	}
	if filepath.IsAbs(target) {
		d.leave(1)
	}
	d.todo, d.made = append(elements(target), d.todo[1:]...), false
	return nil
}

// create makes the next directory of the path and enters it. It does nothing if somebody else makes it meanwhile.
func (d *descent) create(here floor, name string) error {
	last := len(d.todo) == 1
	if !last && !d.parents {
		return syscall.ENOENT
	}
	if err := here.Mkdir(name, 0o700); errors.Is(err, fs.ErrExist) {
		return nil // the next step looks at it
	} else if err != nil {
		return err
	}
	info, err := here.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return replacedError(name)
	}
	if err := d.open(here, name, info); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if last {
		mode = d.mode
	}
	d.todo, d.made = d.todo[1:], true
	given, err := d.give(&mode)
	d.at[len(d.at)-1].trusted = false
	if err == nil && !given {
		err = replacedError(name)
	}
	return err
}

// claim gives the existing last directory to the user if it is an empty one of root.
func (d *descent) claim() error {
	_, err := d.give(nil)
	return err
}

// give gives the last directory to the user, with the mode if that is not nil. It reports false, and leaves the directory
// as it is, if it has content or belongs to somebody else, whether or not this process has made it: another user may have
// put one of root's directories in its place.
func (d *descent) give(mode *fs.FileMode) (given bool, err error) {
	f, err := d.at[len(d.at)-1].Open(".")
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !ours(info) {
		return false, err
	}
	if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return false, err
	}
	if mode != nil {
		err = f.Chmod(*mode)
	}
	if err == nil {
		err = ownerError(f.Chown(d.uid, d.gid), d.uid, d.gid)
	}
	return err == nil, err
}
