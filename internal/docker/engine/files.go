package engine

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Files transfers files of one container with the Engine's archive calls.
type Files struct {
	c         *Client
	container string
	owner     func(context.Context) (FileOwner, error)
}

// Files returns the files of a container. owner returns the owner of new files; it is called for each operation that
// creates some.
func (c *Client) Files(container string, owner func(context.Context) (FileOwner, error)) *Files {
	return &Files{c, container, owner}
}

// Stat describes a path. It does not follow a link at the end of the path.
func (f *Files) Stat(ctx context.Context, path string) (fumehood.FileInfo, error) {
	return f.c.Stat(ctx, f.container, path)
}

// Open opens a regular file and reads length bytes from offset, or up to its end if length is negative. The Engine
// sends the bytes before offset too; they are discarded.
func (f *Files) Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error) {
	r, info, err := f.c.Open(ctx, f.container, path)
	if err != nil || offset == 0 && length < 0 {
		return r, info, err
	}
	if _, err := io.CopyN(io.Discard, r, offset); err != nil && !errors.Is(err, io.EOF) {
		_ = r.Close()
		return nil, info, err
	}
	if length < 0 {
		return r, info, nil
	}
	return part{io.LimitReader(r, length), r}, info, nil
}

// part is a section of an open file.
type part struct {
	io.Reader
	io.Closer
}

// Write creates or replaces a regular file, and creates missing parent directories. They belong to the owner of f, unless
// opts has an owner.
func (f *Files) Write(ctx context.Context, name string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	if opts.Atomic {
		return notByArchive("write atomically")
	}
	owner, err := f.owner(ctx)
	if err == nil && opts.Owner != "" {
		owner, err = f.c.FileOwner(ctx, f.container, opts.Owner)
	}
	if err != nil {
		return err
	}
	resolved, info, err := f.c.resolve(ctx, f.container, name)
	switch {
	case errors.Is(err, fumehood.ErrNotFound) && !errors.Is(err, errLoop): // created, also at the target of a link
	case err != nil:
		return err
	case info.Mode.IsRegular():
	default:
		return wantRegular(info.Mode)
	}
	if strings.HasSuffix(resolved, "/") {
		return fileError(fumehood.ErrIsDirectory)
	}
	heads, err := f.c.missingParents(ctx, f.container, owner, resolved)
	if err != nil {
		return err
	}
	heads = append(heads, tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimLeft(resolved, "/"), Size: size, Mode: int64(opts.Mode.Perm()),
		Uid: owner.UID, Gid: owner.GID, ModTime: opts.ModTime,
	})
	return f.c.extract(ctx, f.container, "/", func(tw *tar.Writer) error { return writeFile(tw, heads, r, size) })
}

// Walk is not supported: to list names, the Engine would have to send all content.
func (f *Files) Walk(context.Context, string, int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		yield(fumehood.WalkEntry{}, notByArchive("list directories"))
	}
}

// Change is not supported.
func (f *Files) Change(_ context.Context, c provider.Change) error {
	return notByArchive(c.Op)
}

// notByArchive returns the error of an operation that the Engine's archive calls do not support.
func notByArchive(operation string) error {
	return &fumehood.Error{
		Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the engine transport cannot %s", operation),
		Hint: "run a command for it, or use the guest transport",
	}
}

// Upload extracts a tar stream into a directory. All entries belong to the owner of f.
func (f *Files) Upload(ctx context.Context, dir string, content io.Reader) error {
	owner, err := f.owner(ctx)
	if err != nil {
		return err
	}
	if err := visible(dir); err != nil {
		return err
	}
	return f.c.extract(ctx, f.container, dir, func(tw *tar.Writer) error { return giveTo(tw, owner, content) })
}

// Download returns a path as a tar stream, without pipes, sockets and devices below it.
func (f *Files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := visible(path); err != nil {
		return nil, err
	}
	res, err := f.c.copyFrom(ctx, f.container, path)
	if err != nil {
		return nil, f.c.fileFailure(ctx, f.container, err)
	}
	return newSkipping(res.Content), nil
}
