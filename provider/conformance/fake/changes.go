package fake

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"time"

	"github.com/fumehood/fumehood"
)

var (
	errDenied  = classed(fumehood.ErrPermission, "permission denied")
	errMissing = classed(fumehood.ErrNotFound, "no such file or directory")
)

// Change does one thing to a file.
func (f files) Change(_ context.Context, c fumehood.Change) error {
	if f.err != nil {
		return f.err
	}
	switch c.Op {
	case fumehood.ChangeMkdir:
		return f.fs.mkdir(f.cred, c.Path, c.Mode, c.All)
	case fumehood.ChangeRemove:
		return f.fs.remove(f.cred, c.Path, c.All)
	case fumehood.ChangeRename:
		return f.fs.rename(f.cred, c.Path, c.Target)
	case fumehood.ChangeSymlink:
		return f.fs.symlink(f.cred, c.Target, c.Path)
	case fumehood.ChangeChmod:
		return f.fs.setMode(f.cred, c.Path, c.Mode)
	case fumehood.ChangeChown:
		owner, err := f.lookUp(c.Owner)
		if err != nil {
			return err
		}
		return f.fs.setOwner(f.cred, c.Path, owner, c.All)
	}
	return classed(fumehood.ErrUnsupported, "the fake provider does not know the change %q", c.Op)
}

func (f *fileSystem) mkdir(c cred, path string, mode fs.FileMode, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if all {
		if n, err := f.existing(c, path, true); err == nil && n.mode.IsDir() {
			return nil
		}
		if err := f.parents(c, path); err != nil {
			return err
		}
	}
	p, err := f.resolve(c, path, false)
	switch {
	case err != nil:
		return err
	case p.node != nil && all:
		return classed(fumehood.ErrNotDirectory, "not a directory")
	case p.node != nil:
		return classed(fumehood.ErrExists, "file exists")
	case !p.dir.allows(c, mayWrite):
		return errDenied
	}
	n := newDir(c)
	n.mode = fs.ModeDir | mode
	p.dir.entries[p.name] = n
	return nil
}

// there is resolve for what is there and no root.
func (f *fileSystem) there(c cred, path string) (place, error) {
	p, err := f.resolve(c, path, false)
	switch {
	case err != nil:
		return p, err
	case p.node == nil:
		return p, errMissing
	case p.name == "/" || p.name == "..":
		return p, classed(fumehood.ErrConfig, "device or resource busy")
	}
	return p, nil
}

func (f *fileSystem) remove(c cred, path string, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.there(c, path)
	if err != nil {
		return err
	}
	if all {
		if err := p.node.empty(c, path); err != nil {
			return err
		}
	}
	switch {
	case !p.dir.allows(c, mayWrite):
		return errDenied
	case len(p.node.entries) > 0:
		return classed(fumehood.ErrNotEmpty, "directory not empty")
	}
	delete(p.dir.entries, p.name)
	return nil
}

// empty removes what is in a directory.
func (n *node) empty(c cred, dir string) error {
	for _, name := range n.children() {
		at := dir + "/" + name
		if !n.allows(c, mayRead) || !n.allows(c, mayEnter) {
			return classed(fumehood.ErrPermission, "%s: permission denied", dir)
		}
		if err := n.entries[name].empty(c, at); err != nil {
			return err
		}
		if !n.allows(c, mayWrite) {
			return classed(fumehood.ErrPermission, "%s: permission denied", at)
		}
		delete(n.entries, name)
	}
	return nil
}

func (f *fileSystem) rename(c cred, from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	src, err := f.there(c, from)
	if err != nil {
		return err
	}
	dst, err := f.resolve(c, to, false)
	switch old := dst.node; {
	case err != nil:
		return err
	case !src.dir.allows(c, mayWrite) || !dst.dir.allows(c, mayWrite):
		return errDenied
	case src.node.holds(dst.dir):
		return classed(fumehood.ErrConfig, "a directory cannot be moved into itself")
	case old == nil || old == src.node:
	case src.node.mode.IsDir() && !old.mode.IsDir():
		return classed(fumehood.ErrNotDirectory, "not a directory")
	case !src.node.mode.IsDir() && old.mode.IsDir():
		return classed(fumehood.ErrIsDirectory, "is a directory")
	case len(old.entries) > 0:
		return classed(fumehood.ErrNotEmpty, "directory not empty")
	}
	delete(src.dir.entries, src.name)
	dst.dir.entries[dst.name] = src.node
	return nil
}

// holds reports whether other is n or below it.
func (n *node) holds(other *node) bool {
	if n == other {
		return true
	}
	for _, child := range n.entries {
		if child.holds(other) {
			return true
		}
	}
	return false
}

// setMode is chmod by somebody who has to own the file.
func (f *fileSystem) setMode(c cred, path string, mode fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.existing(c, path, true)
	if err != nil {
		return err
	}
	if c.uid != 0 && c.uid != n.uid {
		return errDenied
	}
	n.mode = n.mode.Type() | mode
	return nil
}

func (f *fileSystem) setOwner(c cred, path string, owner cred, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.existing(c, path, false)
	if err != nil {
		return err
	}
	return n.giveAll(c, owner, all)
}

// giveAll is give, with all of what is in a directory too.
func (n *node) giveAll(c, owner cred, all bool) error {
	err := n.give(c, owner)
	if !all {
		return err
	}
	for _, name := range n.children() {
		if err == nil {
			err = n.entries[name].giveAll(c, owner, true)
		}
	}
	return err
}

// give is chown: only root gives files away.
func (n *node) give(c, owner cred) error {
	if c.uid != 0 && (c.uid != n.uid || owner.uid != n.uid || owner.gid != n.gid && owner.gid != c.gid) {
		return errDenied
	}
	n.uid, n.gid = owner.uid, owner.gid
	return nil
}

// fresh puts a new file at path, or at what it points to where it is a link.
func (f *fileSystem) fresh(c cred, path string, n *node, owner *cred) error {
	old, err := f.existing(c, path, true)
	switch {
	case errors.Is(err, fumehood.ErrNotFound):
		err = f.parents(c, path)
	case err == nil && old.mode.IsDir():
		err = classed(fumehood.ErrIsDirectory, "is a directory")
	case err == nil && !old.mode.IsRegular():
		err = classed(fumehood.ErrNotRegular, "not a regular file")
	}
	if err != nil {
		return err
	}
	p, err := f.resolve(c, path, true)
	if err != nil {
		return err
	}
	if !p.dir.allows(c, mayWrite) {
		return errDenied
	}
	n.uid, n.gid, n.modTime = c.uid, c.gid, time.Now()
	if owner != nil {
		if err := n.give(c, *owner); err != nil {
			return err
		}
	}
	p.dir.entries[p.name] = n
	return nil
}

// Walk describes the tree as it is now.
func (f files) Walk(_ context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		met, err := f.survey(root, depth)
		if err != nil {
			yield(fumehood.WalkEntry{}, err)
			return
		}
		for _, m := range met {
			if !yield(m.entry, m.err) {
				return
			}
		}
	}
}

// met is what a walk has met.
type met struct {
	entry fumehood.WalkEntry
	err   error
}

func (f files) survey(root string, depth int) ([]met, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.fs.existing(f.cred, root, false)
	if err != nil {
		return nil, err
	}
	var all []met
	n.walk(f.cred, ".", path.Base(root), depth, &all)
	return all, nil
}

func (n *node) walk(c cred, rel, name string, depth int, all *[]met) {
	m := met{entry: fumehood.WalkEntry{Path: rel, FileInfo: n.info(name)}}
	down := n.mode.IsDir() && depth != 0
	if down && !n.allows(c, mayRead) {
		m.err, down = errDenied, false
	}
	*all = append(*all, m)
	if !down {
		return
	}
	for _, child := range n.children() {
		at := path.Join(rel, child)
		if n.allows(c, mayEnter) {
			n.entries[child].walk(c, at, child, depth-1, all)
			continue
		}
		*all = append(*all, met{fumehood.WalkEntry{Path: at, FileInfo: fumehood.FileInfo{Name: child, UID: -1, GID: -1}}, errDenied})
	}
}
