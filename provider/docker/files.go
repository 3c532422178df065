package docker

import (
	"context"
	"io"
	"iter"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/wire/client"
)

var (
	_ fumehood.FileBackend = guestFiles{}
	_ fumehood.FileBackend = (*engine.Files)(nil)
)

// Files returns the files that the guest of a user reads and changes, or that the Engine does.
func (s *service) Files(user string) fumehood.FileBackend {
	if !s.sb.direct() {
		return guestFiles{s, user}
	}
	return s.DirectFiles(user)
}

// DirectFiles returns the files that the Engine reads and writes.
func (s *service) DirectFiles(user string) fumehood.FileBackend {
	return s.sb.p.engine.Files(s.id, func(ctx context.Context) (engine.FileOwner, error) {
		return s.fileOwner(ctx, user)
	})
}

// guestFiles has the guest of a user, which is started if need be, do it all.
type guestFiles struct {
	svc  *service
	user string
}

// with calls do with the guest, and adds to its error what is known of a guest that is lost.
func (f guestFiles) with(ctx context.Context, do func(g *client.Guest) error) error {
	return f.by(ctx, func(c command) error { return do(c.guest.guest) })
}

// by is with for who explains other errors too.
func (f guestFiles) by(ctx context.Context, do func(c command) error) error {
	if err := f.svc.alive(ctx); err != nil {
		return err
	}
	u, err := f.svc.guests.ofUser(ctx, f.user)
	if err != nil {
		return f.svc.explain(ctx, err)
	}
	c := f.svc.begin(u)
	return c.explain(ctx, do(c))
}

// Stat describes a path.
func (f guestFiles) Stat(ctx context.Context, name string) (info fumehood.FileInfo, err error) {
	err = f.with(ctx, func(g *client.Guest) (err error) {
		info, err = g.Stat(ctx, name)
		return err
	})
	return info, err
}

// Open reads a regular file.
func (f guestFiles) Open(ctx context.Context, name string, offset, length int64) (r io.ReadCloser, info fumehood.FileInfo, err error) {
	err = f.with(ctx, func(g *client.Guest) (err error) {
		r, info, err = g.Open(ctx, name, offset, length)
		return err
	})
	return r, info, err
}

// Write makes or replaces a regular file.
func (f guestFiles) Write(ctx context.Context, name string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	return f.with(ctx, func(g *client.Guest) error { return g.Write(ctx, name, r, size, opts) })
}

// Walk describes a tree.
func (f guestFiles) Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		err := f.by(ctx, func(c command) error {
			for e, err := range c.guest.guest.Walk(ctx, root, depth) {
				if !yield(e, c.explain(ctx, err)) {
					break
				}
			}
			return nil
		})
		if err != nil { // there was no guest to ask
			yield(fumehood.WalkEntry{}, err)
		}
	}
}

// Change does one thing to a file.
func (f guestFiles) Change(ctx context.Context, c fumehood.Change) error {
	return f.with(ctx, func(g *client.Guest) error { return g.Change(ctx, c) })
}

// Upload extracts a tar stream.
func (f guestFiles) Upload(ctx context.Context, dir string, tar io.Reader) error {
	return f.with(ctx, func(g *client.Guest) error { return g.Upload(ctx, dir, tar) })
}

// Download returns a path as a tar stream.
func (f guestFiles) Download(ctx context.Context, name string) (r io.ReadCloser, err error) {
	err = f.with(ctx, func(g *client.Guest) (err error) {
		r, err = g.Download(ctx, name)
		return err
	})
	return r, err
}
