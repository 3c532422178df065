package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// node is a file, a directory, a link, or something else that is never opened.
type node struct {
	mode     fs.FileMode
	uid, gid int
	modTime  time.Time
	data     []byte // of a file; never changed in place below its length, so a reader may keep it
	entries  map[string]*node
	target   string // of a link
}

// The bits of a permission.
const (
	mayRead  = 4
	mayWrite = 2
	mayEnter = 1 // or execute
)

func (n *node) allows(c cred, bit fs.FileMode) bool {
	perm := n.mode.Perm()
	switch {
	case c.uid == 0:
		return bit != mayEnter || n.mode.IsDir() || perm&0o111 != 0
	case c.uid == n.uid:
		perm >>= 6
	case c.gid == n.gid:
		perm >>= 3
	}
	return perm&bit != 0
}

// fileSystem is the sandbox's files. Its paths are absolute and not cleaned.
type fileSystem struct {
	mu   sync.Mutex // guards every node
	root *node
}

func newFileSystem() *fileSystem {
	return &fileSystem{root: newDir(root)}
}

func newDir(c cred) *node {
	return &node{mode: fs.ModeDir | 0o755, uid: c.uid, gid: c.gid, modTime: time.Now(), entries: map[string]*node{}}
}

// place is where a path leads: a node, or the name that nothing has yet in a directory.
type place struct {
	dir  *node
	name string
	node *node // nil where there is nothing
}

func classed(class error, format string, a ...any) error {
	return &fumehood.Error{Class: class, Err: fmt.Errorf(format, a...)}
}

// maxLinks is how many links one path may lead through, as on Linux.
const maxLinks = 40

// maxName is the longest name of a file, in bytes, as on Linux.
const maxName = 255

// resolve walks to path as c may, following a link that it names if follow is set. Links lead nowhere
// but into this file system, whose root is above itself.
func (f *fileSystem) resolve(c cred, path string, follow bool) (place, error) {
	at := []*node{f.root} // the directories from the root down
	todo := strings.Split(path, "/")
	here := place{dir: f.root, name: "/", node: f.root}
	links := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		dir := at[len(at)-1]
		if name == "" || name == "." {
			continue
		}
		if !dir.allows(c, mayEnter) {
			return place{}, classed(fumehood.ErrPermission, "permission denied")
		}
		if len(name) > maxName {
			return place{}, classed(fumehood.ErrLimit, "file name too long")
		}
		if name == ".." {
			at = at[:max(1, len(at)-1)]
			here = place{dir: at[len(at)-1], name: "..", node: at[len(at)-1]}
			continue
		}
		n := dir.entries[name]
		last := len(todo) == 0
		switch {
		case n == nil && strings.Join(todo, "") == "":
			return place{dir: dir, name: name}, nil
		case n == nil:
			return place{}, classed(fumehood.ErrNotFound, "no such file or directory")
		case n.mode.Type() == fs.ModeSymlink && (!last || follow):
			if links++; links > maxLinks {
				return place{}, classed(fumehood.ErrNotFound, "too many levels of symbolic links")
			}
			todo = append(strings.Split(n.target, "/"), todo...)
			if strings.HasPrefix(n.target, "/") {
				at = at[:1]
			}
			here = place{dir: at[len(at)-1], name: "", node: at[len(at)-1]}
			continue
		case n.mode.IsDir():
			at = append(at, n)
		case !last:
			return place{}, classed(fumehood.ErrNotDirectory, "not a directory")
		}
		here = place{dir: dir, name: name, node: n}
	}
	return here, nil
}

// existing is resolve for what must be there.
func (f *fileSystem) existing(c cred, path string, follow bool) (*node, error) {
	p, err := f.resolve(c, path, follow)
	if err != nil {
		return nil, err
	}
	if p.node == nil {
		return nil, classed(fumehood.ErrNotFound, "no such file or directory")
	}
	return p.node, nil
}

// regular is resolve for a regular file that c may use as bit says.
func (f *fileSystem) regular(c cred, path string, bit fs.FileMode) (*node, error) {
	n, err := f.existing(c, path, true)
	if err != nil {
		return nil, err
	}
	switch {
	case n.mode.IsDir():
		return nil, classed(fumehood.ErrIsDirectory, "is a directory")
	case !n.mode.IsRegular():
		return nil, classed(fumehood.ErrNotRegular, "not a regular file")
	case !n.allows(c, bit):
		return nil, classed(fumehood.ErrPermission, "permission denied")
	}
	return n, nil
}

// add puts a node at path, where nothing may be yet; or, with follow, where a link there points to.
func (f *fileSystem) add(c cred, path string, n *node, follow bool) error {
	p, err := f.resolve(c, path, follow)
	if err != nil {
		return err
	}
	if p.node != nil {
		return classed(fumehood.ErrExists, "file exists")
	}
	if !p.dir.allows(c, mayWrite) {
		return classed(fumehood.ErrPermission, "permission denied")
	}
	n.uid, n.gid, n.modTime = c.uid, c.gid, time.Now()
	p.dir.entries[p.name] = n
	return nil
}

// parents makes the directories above path that are missing.
func (f *fileSystem) parents(c cred, path string) error {
	dir := path[:strings.LastIndexByte(strings.TrimRight(path, "/"), '/')+1]
	if dir == "" || dir == "/" {
		return nil
	}
	return f.makeDirs(c, dir)
}

func (f *fileSystem) makeDirs(c cred, path string) error {
	path = strings.TrimRight(path, "/")
	n, err := f.existing(c, path, true)
	if err == nil && !n.mode.IsDir() {
		return classed(fumehood.ErrNotDirectory, "not a directory")
	}
	if err == nil || !errors.Is(err, fumehood.ErrNotFound) {
		return err
	}
	if err := f.parents(c, path); err != nil {
		return err
	}
	return f.add(c, path, newDir(c), false)
}

// children are the names in a directory, sorted.
func (n *node) children() []string { return slices.Sorted(maps.Keys(n.entries)) }
