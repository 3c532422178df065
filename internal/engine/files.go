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

// Files moves files of one container by the Engine's archive calls.
type Files struct {
	c         *Client
	container string
	owner     func(context.Context) (FileOwner, error)
}

// Files returns the files of a container. What is made in it belongs to the owner, who is asked for then.
func (c *Client) Files(container string, owner func(context.Context) (FileOwner, error)) *Files {
	return &Files{c, container, owner}
}

// Stat describes a path without following a link at its end.
func (f *Files) Stat(ctx context.Context, path string) (fumehood.FileInfo, error) {
	return f.c.Stat(ctx, f.container, path)
}

// Open reads length bytes of a regular file from offset on, or all of them where length is negative. What
// comes before is read too, and dropped.
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

// part is a part of an open file.
type part struct {
	io.Reader
	io.Closer
}

// Write makes or replaces a regular file, with the directories above it that are missing. These belong to the owner of f,
// the file to that of opts, if it has one.
func (f *Files) Write(ctx context.Context, name string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	if opts.Atomic {
		return notByArchive("write atomically")
	}
	owner, err := f.owner(ctx)
	if err != nil {
		return err
	}
	of := owner
	if opts.Owner != "" {
		if of, err = f.c.FileOwner(ctx, f.container, opts.Owner); err != nil {
			return err
		}
	}
	resolved, info, err := f.c.resolve(ctx, f.container, name)
	switch {
	case errors.Is(err, fumehood.ErrNotFound) && !errors.Is(err, errLoop): // it is made, where a link points to too
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
		Uid: of.UID, Gid: of.GID,
	})
	return f.c.extract(ctx, f.container, "/", func(tw *tar.Writer) error { return writeFile(tw, heads, r, size) })
}

// Walk is not possible: the Engine would send all content to tell the names.
func (f *Files) Walk(context.Context, string, int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		yield(fumehood.WalkEntry{}, notByArchive("list directories"))
	}
}

// Change is not possible.
func (f *Files) Change(_ context.Context, c provider.Change) error {
	return notByArchive(c.Op)
}

// notByArchive is the error of what the Engine's archive calls have no way to do.
func notByArchive(what string) error {
	return &fumehood.Error{
		Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the engine transport cannot %s", what),
		Hint: "run a command that does, or use the guest transport",
	}
}

// Upload extracts a tar stream into a directory. What is in it then belongs to the owner.
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

// Download returns a path as a tar stream.
func (f *Files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := visible(path); err != nil {
		return nil, err
	}
	res, err := f.c.copyFrom(ctx, f.container, path)
	if err != nil {
		return nil, f.c.fileFailure(ctx, f.container, err)
	}
	return res.Content, nil
}
