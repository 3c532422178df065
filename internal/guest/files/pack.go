package files

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// maxDepth is how many directories below each other Pack descends into. It holds so many open.
const maxDepth = 250

// Pack is archive.Pack for a tree that other users' programs may change meanwhile. It reads nothing outside the tree, even if
// a link replaces a file or a directory. What is removed meanwhile is left out. What is below maxDepth directories, or has a
// longer path than MaxPath, is left out too, as pipes, sockets and devices are, and listed in an archive.SkippedRecord:
// otherwise programs could prevent with it that a folder is copied. So is a file that becomes shorter, see archive.Changed.
// As root, a pipe, a socket or a device is an error.
func Pack(w io.Writer, root, name string) error {
	tw := tar.NewWriter(w)
	var top tar.Header
	var skipped archive.Skipped
	err := Walk(root, maxDepth, func(e Entry) error {
		switch {
		case errors.Is(e.Err, syscall.ENAMETOOLONG) && e.Path != ".", e.Err == nil && e.Info.IsDir() && depth(e.Path) == maxDepth:
			skipped.Add(e.Path, archive.TooDeep)
			return nil
		case e.Err != nil:
			return e.addPath(e.Err)
		case e.Path != "." && archive.Special(e.Info.Mode()):
			skipped.Add(e.Path, archive.Kind(e.Info.Mode()))
			return nil
		}
		found := archive.Found{Path: filepath.Join(root, filepath.FromSlash(e.Path)), Info: e.Info, Link: e.Link, Open: e.open}
		head, err := found.AddTo(tw, path.Join(name, e.Path))
		if e.Path == "." {
			top = head
		} else if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if errors.Is(err, archive.ErrChanged) {
			skipped.Add(e.Path, archive.Changed)
			return nil
		}
		return e.addPath(err)
	})
	if err == nil {
		err = skipped.Finish(tw, &top)
	}
	if err != nil {
		return err
	}
	return tw.Close()
}

// depth is the number of directories of the tree that are above a file, of which the root is one.
func depth(path string) int {
	if path == "." {
		return 0
	}
	return strings.Count(path, "/") + 1
}

// addPath adds the path of a file below the root to an error of package os, of which only the cause is reported.
func (e Entry) addPath(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) && e.Path != "." {
		return &fs.PathError{Op: at.Op, Path: at.Path, Err: fmt.Errorf("%q: %w", e.Path, at.Err)}
	}
	return err
}

// open opens a regular file. A link in its place leads at most to another file of the directory that the walk has opened.
func (e Entry) open() (*os.File, error) {
	if e.at.dir != nil {
		f, err := archive.Regular(e.at.dir.OpenFile(e.at.name, os.O_RDONLY|archive.NonBlock, 0))
		if errors.Is(err, archive.ErrNotRegular) {
			err = syscall.ENOENT // the file that was found has been replaced
		}
		return f, err
	}
	f, err := archive.OpenRegular(e.at.name)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(now, e.Info) {
		return nil, errors.Join(syscall.ENOENT, err, f.Close())
	}
	return f, nil
}
