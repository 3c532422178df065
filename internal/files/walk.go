// Package files does to the files of its own process's user what package fumehood promises of files. Its
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

// MaxPath bounds the path of a directory that a walk enters, in bytes.
const MaxPath = 16 << 10

// Entry is what a walk has met.
type Entry struct {
	Path string      // relative to the root, with slashes; "." for the root
	Info fs.FileInfo // nil where Err says why there is none
	Link string      // where a link points to
	Err  error       // what could not be learned, or that the directory cannot be read
	at   place
}

// Walk calls found with root and what is below it, at most depth levels deep, or all of it where depth is
// negative. A directory comes before what is in it, which comes by name. No link is followed, also where a
// directory is being replaced by one. The first error of found ends the walk and is returned.
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
		return nil // it went away meanwhile
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

// place is where a file is: below the directory, or of that path where dir is nil.
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
		return os.Lchown(p.name, uid, gid)
	}
	err := p.dir.Lchown(p.name, uid, gid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went away meanwhile
	}
	return err
}

func (p place) open() (*os.Root, error) {
	if p.dir == nil {
		return os.OpenRoot(p.name)
	}
	return p.dir.OpenRoot(p.name)
}

// changed reports whether what was described has gone, or made room for another.
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

// namesIn lists dir, which must be the one that was described: it may be another by now, or a link.
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
