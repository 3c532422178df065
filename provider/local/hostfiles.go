package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/provider"
)

// fileError assigns a class to an error of package os, by errno, and removes the redundant path.
func fileError(err error) error {
	if err == nil {
		return nil
	}
	var already *fumehood.Error
	if errors.As(err, &already) {
		return err
	}
	cause := files.Cause(err)
	var class error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		class = fumehood.ErrNotFound
	case errors.Is(err, syscall.ELOOP):
		class = fumehood.ErrNotFound // a loop leads to no file
	case errors.Is(err, syscall.ENOTDIR):
		class = fumehood.ErrNotDirectory
	case errors.Is(err, syscall.EISDIR):
		class = fumehood.ErrIsDirectory
	case errors.Is(err, errNotEmpty): // also matches fs.ErrExist
		class = fumehood.ErrNotEmpty
	case errors.Is(err, fs.ErrExist):
		class = fumehood.ErrExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.EBUSY),
		errors.Is(err, archive.ErrChanged):
		class = fumehood.ErrPermission
	case errors.Is(err, archive.ErrNotRegular), errors.Is(err, syscall.ENXIO):
		class = fumehood.ErrNotRegular
	case errors.Is(err, syscall.EINVAL):
		class = fumehood.ErrConfig
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.EMLINK),
		errors.Is(err, syscall.ENAMETOOLONG):
		class = fumehood.ErrLimit
	case errors.Is(err, syscall.EXDEV), errors.Is(err, errors.ErrUnsupported):
		class = fumehood.ErrUnsupported
	case errors.Is(err, files.ErrNoUser):
		class = fumehood.ErrUserNotFound
	default:
		return cause
	}
	return &fumehood.Error{Class: class, Err: cause}
}

// openRegular opens a regular file for reading. It does not open files of other types.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, nil, syscall.EISDIR
	}
	f, err := archive.OpenRegular(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func infoOf(info fs.FileInfo, link string) fumehood.FileInfo {
	out := fumehood.FileInfo{Name: info.Name(), Mode: info.Mode(), ModTime: info.ModTime(), LinkTarget: link}
	if info.Mode().IsRegular() {
		out.Size = info.Size()
	}
	out.UID, out.GID = files.OwnerOf(info)
	return out
}

// newHostFiles returns the host's files, accessed with the permissions of this process. Paths are the host's own: a link is
// followed wherever it leads, and only Upload keeps its entries inside its directory.
func newHostFiles() provider.FileBackend { return hostFiles{} }

// hostFiles implements a provider's files by the files of this process's host. Its sandboxes have a directory of the host,
// or the whole host. As links reach all files of the host, the provider is an exception to the promise "links/links stay
// inside the sandbox".
type hostFiles struct{}

func (hostFiles) Stat(_ context.Context, path string) (fumehood.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return fumehood.FileInfo{}, fileError(err)
	}
	link := ""
	if info.Mode().Type() == fs.ModeSymlink {
		if link, err = os.Readlink(path); err != nil {
			return fumehood.FileInfo{}, fileError(err)
		}
	}
	return infoOf(info, link), nil
}

// Open reads length bytes from offset on, or everything if length is negative.
func (hostFiles) Open(_ context.Context, path string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error) {
	file, info, err := openRegular(path)
	if err != nil {
		return nil, fumehood.FileInfo{}, fileError(err)
	}
	if length < 0 {
		length = math.MaxInt64 - offset
	}
	return part{io.NewSectionReader(file, offset, length), file}, infoOf(info, ""), nil
}

// part is a part of an open file.
type part struct {
	io.Reader
	io.Closer
}

// Write writes in place unless opts.Atomic is set. So links and owners are kept, and processes that have the file
// open see the change. After an error the file may be incomplete.
func (hostFiles) Write(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	how := files.Options{Mode: opts.Mode, UID: -1, GID: -1, Atomic: opts.Atomic, ModTime: opts.ModTime}
	var err error
	if opts.Owner != "" {
		if how.UID, how.GID, err = files.Owner(opts.Owner); err != nil {
			return fileError(err)
		}
	}
	w, err := files.Create(path, how)
	if err != nil {
		return fileError(err)
	}
	return fileError(w.Finish(fill(ctx, w, r, size)))
}

func fill(ctx context.Context, w io.Writer, r io.Reader, size int64) error {
	src := &source{ctx: ctx, r: r}
	n, err := io.CopyN(w, src, size)
	if src.err != nil {
		return src.err
	}
	if errors.Is(err, io.EOF) {
		return classError(fumehood.ErrConfig, "the content ended after %d of %d bytes", n, size)
	}
	return err
}

// errStopped ends a walk after the caller has left its loop.
var errStopped = errors.New("stopped")

// Walk describes a tree.
func (hostFiles) Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		_, err := os.Lstat(root)
		if err == nil {
			err = files.Walk(root, depth, func(e files.Entry) error {
				if ctx.Err() != nil {
					return &fumehood.Error{Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
				}
				if !yield(entryOf(e, root), fileError(e.Err)) {
					return errStopped
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(fumehood.WalkEntry{}, fileError(err))
		}
	}
}

func entryOf(e files.Entry, root string) fumehood.WalkEntry {
	out := fumehood.WalkEntry{Path: e.Path, FileInfo: fumehood.FileInfo{Name: path.Base(e.Path), UID: -1, GID: -1}}
	if e.Info != nil {
		out.FileInfo = infoOf(e.Info, e.Link)
	}
	if e.Path == "." {
		out.Name = filepath.Base(root)
	}
	return out
}

// Change carries out a file operation without content.
func (hostFiles) Change(_ context.Context, c provider.Change) error {
	switch c.Op {
	case provider.ChangeMkdir:
		return fileError(files.Mkdir(c.Path, c.Mode, c.Recursive, c.Owner))
	case provider.ChangeRemove:
		return fileError(files.Remove(c.Path, c.Recursive))
	case provider.ChangeRename:
		return fileError(files.Rename(c.Path, c.Target))
	case provider.ChangeSymlink:
		return fileError(os.Symlink(c.Target, c.Path))
	case provider.ChangeChmod:
		return fileError(os.Chmod(c.Path, c.Mode))
	case provider.ChangeChown:
		uid, gid, err := files.Owner(c.Owner)
		if err != nil {
			return fileError(err)
		}
		return fileError(files.Chown(c.Path, uid, gid, c.Recursive))
	}
	return classError(fumehood.ErrUnsupported, "unknown change %q", c.Op)
}

// source reads the caller's content until ctx ends. It keeps the caller's errors apart from those of the disk. It is
// used only during the call that ctx belongs to.
type source struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		s.err = &fumehood.Error{Class: fumehood.ErrCanceled, Err: fumehood.Cause(s.ctx)}
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("read the content: %w", err)}
		err = s.err
	}
	return n, err
}

// directory returns an error unless path is a directory.
func directory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fileError(err)
	}
	if !info.IsDir() {
		return classError(fumehood.ErrNotDirectory, "not a directory")
	}
	return nil
}
