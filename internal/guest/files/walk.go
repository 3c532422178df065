// Package files implements the file operations of package fumehood for the files of its own process's user. Its
// errors are the kernel's. The guest uses it inside containers, the local provider on the host.
package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
)

// MaxPath is the longest path of a directory that a walk enters, in bytes.
const MaxPath = 16 << 10

// Entry is a file or directory found by a walk.
type Entry struct {
	Path string      // relative to the root, with slashes; "." for the root
	Info fs.FileInfo // nil if lstat failed; Err is its error
	Link string      // the target of a link
	Err  error       // the error of lstat, of reading the link, or of reading the directory
	at   place
}

// Walk calls found with root and everything below it. depth is the maximum number of levels; negative means no limit.
// A directory comes before its content, which is sorted by name. Walk follows no link, even if a link replaces a
// directory meanwhile. The first error of found ends the walk and is returned.
func Walk(root string, depth int, found func(Entry) error) error {
	return walker{found}.visit(place{name: root}, ".", depth)
}

type walker struct{ found func(Entry) error }

func (w walker) visit(p place, rel string, depth int) error {
	e := Entry{Path: rel, at: p}
	var dir *os.Root
	var names []string
	if e.Info, e.Err = p.lstat(); e.Err == nil {
		switch mode := e.Info.Mode(); {
		case mode&fs.ModeSymlink != 0:
			e.Link, e.Err = p.readlink()
		case mode.IsDir() && depth != 0:
			if dir, names, e.Err = p.read(e); dir != nil {
				defer dir.Close()
			}
		}
	}
	if e.Err != nil && p.dir != nil && (errors.Is(e.Err, fs.ErrNotExist) || p.changed(e.Info)) {
		return nil // it was removed meanwhile
	}
	if err := w.found(e); err != nil {
		return err
	}
	for _, name := range names {
		if err := w.visit(place{dir, name}, path.Join(rel, name), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// place is the location of a file: name in dir, or the path name if dir is nil.
type place struct {
	dir  *os.Root
	name string
}

func (p place) lstat() (fs.FileInfo, error) {
	if p.dir == nil {
		return os.Lstat(p.name)
	}
	return p.dir.Lstat(p.name)
}

func (p place) readlink() (string, error) {
	if p.dir == nil {
		return os.Readlink(p.name)
	}
	return p.dir.Readlink(p.name)
}

func (p place) lchown(uid, gid int) error {
	if p.dir == nil {
		return ownerError(os.Lchown(p.name, uid, gid), uid, gid)
	}
	err := ownerError(p.dir.Lchown(p.name, uid, gid), uid, gid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed meanwhile
	}
	return err
}

func (p place) open() (*os.Root, error) {
	if p.dir == nil {
		return os.OpenRoot(p.name)
	}
	return p.dir.OpenRoot(p.name)
}

// changed reports whether the described file was removed or replaced.
func (p place) changed(described fs.FileInfo) bool {
	now, err := p.lstat()
	return described != nil && (errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, described))
}

// read opens a directory and returns the names in it, sorted.
func (p place) read(e Entry) (*os.Root, []string, error) {
	if len(e.Path) > MaxPath {
		return nil, nil, syscall.ENAMETOOLONG
	}
	dir, err := p.open()
	if err != nil {
		return nil, nil, err
	}
	names, err := namesIn(dir, e.Info)
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	slices.Sort(names)
	return dir, names, nil
}

// namesIn lists dir. It fails if dir is not the directory that was described, because something has replaced it.
func namesIn(dir *os.Root, described fs.FileInfo) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, described) {
		return nil, errors.Join(err, syscall.ENOTDIR)
	}
	return f.Readdirnames(-1)
}
