package files

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Pack is archive.Pack for a tree that other users' programs may change meanwhile. It reads nothing outside the tree, even if
// a link replaces a file or a directory. What is removed meanwhile is left out.
func Pack(w io.Writer, root, name string) error {
	tw := tar.NewWriter(w)
	err := Walk(root, -1, func(e Entry) error {
		if e.Err != nil {
			return e.Err
		}
		found := archive.Found{Path: filepath.Join(root, filepath.FromSlash(e.Path)), Info: e.Info, Link: e.Link, Open: e.open}
		err := found.AddTo(tw, path.Join(name, e.Path))
		if errors.Is(err, fs.ErrNotExist) && e.Path != "." {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// open opens a regular file. A link in its place leads at most to another file of the directory that the walk has opened.
func (e Entry) open() (*os.File, error) {
	if e.at.dir != nil {
		return archive.Regular(e.at.dir.OpenFile(e.at.name, os.O_RDONLY|archive.NonBlock, 0))
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
