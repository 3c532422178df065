package box

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.FileBackend = files{}

// Files returns access to files through the guest of a user. The guest is started on first use.
func (m *Guests) Files(user string) provider.FileBackend { return files{m, user} }

type files struct {
	m    *Guests
	user string
}

// with calls do with the guest. If the guest is lost, it adds the reason to the error.
func (f files) with(ctx context.Context, do func(g *host.Guest) error) error {
	return f.by(ctx, func(c Command) error { return do(c.guest.Guest) })
}

// by is with for callers that also explain other errors.
func (f files) by(ctx context.Context, do func(c Command) error) error {
	if !f.m.now().Lives {
		if death := f.m.cfg.Unit.Death(ctx); death.Err != nil {
			return death.Err
		}
	}
	var c Command
	reached, err := f.m.reach(ctx, f.user, func(u *guest) error {
		c = f.m.begin(u)
		return do(c)
	})
	if !reached {
		return f.m.Explain(ctx, err)
	}
	return c.explain(ctx, err)
}

// explained is content whose errors are explained like those of other calls.
type explained struct {
	io.ReadCloser
	explain func(error) error
}

// Read reads content.
func (e explained) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // io.EOF is never wrapped
		err = e.explain(err)
	}
	return n, err
}

// stream calls open with the guest, and explains the errors of the content that it returns.
func (f files) stream(ctx context.Context, open func(g *host.Guest) (io.ReadCloser, error)) (r io.ReadCloser, err error) {
	err = f.by(ctx, func(c Command) error {
		content, err := open(c.guest.Guest)
		if err == nil {
			r = explained{content, func(err error) error { return c.explain(ctx, err) }}
		}
		return err
	})
	return r, err
}

// Stat returns a description of a path.
func (f files) Stat(ctx context.Context, name string) (info fumehood.FileInfo, err error) {
	err = f.with(ctx, func(g *host.Guest) (err error) {
		info, err = g.Stat(ctx, name)
		return err
	})
	return info, err
}

// Open opens a regular file for reading.
func (f files) Open(ctx context.Context, name string, offset, length int64) (r io.ReadCloser, info fumehood.FileInfo, err error) {
	r, err = f.stream(ctx, func(g *host.Guest) (r io.ReadCloser, err error) {
		r, info, err = g.Open(ctx, name, offset, length)
		return r, err
	})
	return r, info, err
}

// Write creates or replaces a regular file.
func (f files) Write(ctx context.Context, name string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	return f.with(ctx, func(g *host.Guest) error { return g.Write(ctx, name, r, size, opts) })
}

// Walk walks a tree and yields its entries.
func (f files) Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		err := f.by(ctx, func(c Command) error {
			for e, err := range c.guest.Walk(ctx, root, depth) {
				if errors.Is(err, host.ErrUnsent) {
					return err
				}
				if !yield(e, c.explain(ctx, err)) {
					break
				}
			}
			return nil
		})
		if err != nil { // no guest could be started
			yield(fumehood.WalkEntry{}, err)
		}
	}
}

// Change performs one change of a file.
func (f files) Change(ctx context.Context, c provider.Change) error {
	return f.with(ctx, func(g *host.Guest) error { return g.Change(ctx, c) })
}

// Upload extracts a tar stream.
func (f files) Upload(ctx context.Context, dir string, tar io.Reader) error {
	return f.with(ctx, func(g *host.Guest) error { return g.Upload(ctx, dir, tar) })
}

// Download returns a path as a tar stream.
func (f files) Download(ctx context.Context, name string) (r io.ReadCloser, err error) {
	return f.stream(ctx, func(g *host.Guest) (io.ReadCloser, error) { return g.Download(ctx, name) })
}
