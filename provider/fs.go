package provider

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
)

func (s *service) FS(ctx context.Context, dir string) fs.FS {
	return &fileSystem{ctx, s, strings.TrimSuffix(cmp.Or(dir, "."), "/")}
}

// fileSystem is a directory of a service as an fs.FS.
type fileSystem struct {
	ctx context.Context //nolint:containedctx // package io/fs has no contexts
	svc *service
	dir string
}

var (
	_ fs.StatFS     = (*fileSystem)(nil)
	_ fs.ReadFileFS = (*fileSystem)(nil)
	_ fs.ReadDirFS  = (*fileSystem)(nil)
	_ fs.ReadLinkFS = (*fileSystem)(nil)
)

func (f *fileSystem) Open(name string) (fs.File, error) {
	const op = "open"
	at, err := f.path(op, name)
	if err != nil {
		return nil, err
	}
	r, info, err := f.svc.Open(f.ctx, at)
	switch {
	case err == nil:
		return &openFile{r, f.info(name, info)}, nil
	case errors.Is(err, fumehood.ErrIsDirectory):
		info, err := f.Stat(name)
		if err != nil {
			return nil, err
		}
		return &openDir{fsys: f, name: name, info: info}, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: err}
}

// Stat describes the target of a link. A link to a pipe, a socket or a device is an ErrNotRegular.
func (f *fileSystem) Stat(name string) (fs.FileInfo, error) {
	const op = "stat"
	at, err := f.path(op, name)
	if err != nil {
		return nil, err
	}
	info, err := f.Lstat(name)
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return info, err
	}
	r, target, err := f.svc.Open(f.ctx, at)
	if err == nil {
		return f.info(name, target), r.Close()
	}
	if errors.Is(err, fumehood.ErrIsDirectory) {
		if target, err = f.svc.Stat(f.ctx, at+"/."); err == nil {
			return f.info(name, target), nil
		}
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: err}
}

func (f *fileSystem) Lstat(name string) (fs.FileInfo, error) {
	const op = "lstat"
	at, err := f.path(op, name)
	if err != nil {
		return nil, err
	}
	info, err := f.svc.Stat(f.ctx, at)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return f.info(name, info), nil
}

func (f *fileSystem) ReadLink(name string) (string, error) {
	const op = "readlink"
	at, err := f.path(op, name)
	if err != nil {
		return "", err
	}
	info, err := f.svc.Stat(f.ctx, at)
	if err == nil && info.Mode.Type() != fs.ModeSymlink {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	return info.LinkTarget, nil
}

func (f *fileSystem) ReadFile(name string) ([]byte, error) {
	const op = "read"
	at, err := f.path(op, name)
	if err != nil {
		return nil, err
	}
	data, err := f.svc.ReadFile(f.ctx, at, fumehood.ReadOptions{})
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return data, nil
}

func (f *fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	const op = "readdir"
	at, err := f.path(op, name)
	if err != nil {
		return nil, err
	}
	list, err := f.svc.List(f.ctx, at)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	entries := make([]fs.DirEntry, len(list))
	for i, info := range list {
		entries[i] = fs.FileInfoToDirEntry(fileInfo{info})
	}
	return entries, nil
}

// info describes a file under the given name, also if a link led to it.
func (f *fileSystem) info(name string, info fumehood.FileInfo) fs.FileInfo {
	info.Name = path.Base(name)
	return fileInfo{info}
}

// path returns the path of a name in the service. It fails if package io/fs does not allow the name, or if the
// context has ended.
func (f *fileSystem) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if f.ctx.Err() != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: canceledError(f.ctx, op, f.svc.info.Name)}
	}
	return f.dir + "/" + name, nil
}

// fileInfo implements fs.FileInfo. Its Sys is the fumehood.FileInfo.
type fileInfo struct{ fumehood.FileInfo }

func (i fileInfo) Name() string       { return i.FileInfo.Name }
func (i fileInfo) Size() int64        { return i.FileInfo.Size }
func (i fileInfo) Mode() fs.FileMode  { return i.FileInfo.Mode }
func (i fileInfo) ModTime() time.Time { return i.FileInfo.ModTime }
func (i fileInfo) IsDir() bool        { return i.FileInfo.Mode.IsDir() }
func (i fileInfo) Sys() any           { return i.FileInfo }

// openFile is an open regular file.
type openFile struct {
	io.ReadCloser
	info fs.FileInfo
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// openDir is an open directory. It is listed at the first read.
type openDir struct {
	fsys *fileSystem
	name string
	info fs.FileInfo
	rest []fs.DirEntry // nil until it is listed
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: fumehood.ErrIsDirectory}
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.rest == nil {
		var err error
		if d.rest, err = d.fsys.ReadDir(d.name); err != nil {
			return nil, err
		}
	}
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	next := d.rest[:n:n]
	d.rest = d.rest[n:]
	return next, nil
}
