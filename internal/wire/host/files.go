package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// transfer is a file request in progress.
type transfer struct {
	ctx  context.Context //nolint:containedctx // ends the stream, and gives the reason
	s    *wire.Stream
	stop func() bool
	once sync.Once
}

// file requests a file operation, and returns the guest's first answer.
func (g *Guest) file(ctx context.Context, req wire.File) (*transfer, wire.FileReply, error) {
	s, err := g.request(wire.Request{File: &req})
	if err != nil {
		return nil, wire.FileReply{}, err
	}
	t := &transfer{ctx: ctx, s: s, stop: context.AfterFunc(ctx, s.Close)}
	reply, err := t.reply()
	if err != nil {
		t.end()
		return nil, reply, err
	}
	return t, reply, nil
}

func (t *transfer) end() {
	t.once.Do(func() {
		t.stop()
		t.s.Close()
	})
}

// failure returns the error of a stream that has ended.
func (t *transfer) failure(err error) error {
	if t.ctx.Err() != nil {
		return &fumehood.Error{Class: fumehood.ErrCanceled, Err: context.Cause(t.ctx)}
	}
	return lostError(err)
}

// reply waits for the guest's next answer.
func (t *transfer) reply() (wire.FileReply, error) {
	ev, err := t.s.Receive()
	switch {
	case err != nil:
		return wire.FileReply{}, t.failure(err)
	case ev.Type != wire.Message:
		return wire.FileReply{}, protocolError("content where an answer was expected")
	}
	reply, err := decodeReply(ev.Payload)
	if reply.Failed != nil && reply.Failed.BadContent && t.ctx.Err() != nil {
		return reply, t.failure(err) // the content is bad because the context closed the stream
	}
	return reply, err
}

func decodeReply(text []byte) (wire.FileReply, error) {
	var r wire.FileReply
	if err := json.Unmarshal(text, &r); err != nil {
		return r, protocolError("%w", err)
	}
	if r.Failed != nil {
		return r, fileFailure(r.Failed)
	}
	return r, nil
}

// Linux's error numbers, the same on amd64 and arm64.
const (
	eperm, enoent, enxio, eacces, ebusy, eexist, exdev, enotdir, eisdir, einval = 1, 2, 6, 13, 16, 17, 18, 20, 21, 22
	emfile, etxtbsy, efbig, enospc, erofs, emlink, enametoolong                 = 24, 26, 27, 28, 30, 31, 36
	enotempty, eloop, eopnotsupp, edquot                                        = 39, 40, 95, 122
)

var fileClasses = map[int]error{
	enoent: fumehood.ErrNotFound, eloop: fumehood.ErrNotFound, eexist: fumehood.ErrExists, enotempty: fumehood.ErrNotEmpty,
	eperm: fumehood.ErrPermission, eacces: fumehood.ErrPermission, erofs: fumehood.ErrPermission,
	etxtbsy: fumehood.ErrPermission, ebusy: fumehood.ErrPermission,
	enotdir: fumehood.ErrNotDirectory, eisdir: fumehood.ErrIsDirectory, enxio: fumehood.ErrNotRegular,
	enospc: fumehood.ErrLimit, edquot: fumehood.ErrLimit, efbig: fumehood.ErrLimit, emlink: fumehood.ErrLimit,
	emfile:       fumehood.ErrLimit, // the guest's own limit, which a program of the same user may lower
	enametoolong: fumehood.ErrLimit, einval: fumehood.ErrConfig,
	exdev: fumehood.ErrUnsupported, eopnotsupp: fumehood.ErrUnsupported,
}

func fileFailure(f *wire.FileError) error {
	class := fumehood.ErrInfrastructure
	switch known, ok := fileClasses[f.Errno]; {
	case f.NotRegular && f.Text == fumehood.ErrNotRegular.Error():
		return &fumehood.Error{Class: fumehood.ErrNotRegular}
	case f.NotRegular:
		class = fumehood.ErrNotRegular
	case f.NoUser:
		class = fumehood.ErrUserNotFound
	case f.BadContent:
		class = fumehood.ErrConfig
	case ok:
		class = known
	}
	return &fumehood.Error{Class: class, Err: errors.New(f.Text)}
}

// info converts the description of a file. It takes the file's name from the requested path, not from the guest.
func info(i *wire.FileInfo, name string) (fumehood.FileInfo, error) {
	if i == nil || i.Size < 0 {
		return fumehood.FileInfo{}, protocolError("invalid file description")
	}
	mode := fs.FileMode(i.Mode)
	if i.Size > 0 && !mode.IsRegular() || len(i.Link) > 0 && mode.Type() != fs.ModeSymlink {
		return fumehood.FileInfo{}, protocolError("invalid file description of mode %v", mode)
	}
	return fumehood.FileInfo{
		Name: path.Base(name), Size: i.Size, Mode: mode, ModTime: time.Unix(0, i.ModTime), LinkTarget: string(i.Link),
		UID: int(i.UID), GID: int(i.GID),
	}, nil
}

// Stat describes a path without following a link at its end.
func (g *Guest) Stat(ctx context.Context, name string) (fumehood.FileInfo, error) {
	t, r, err := g.file(ctx, wire.File{Op: wire.Stat, Path: []byte(name)})
	if err != nil {
		return fumehood.FileInfo{}, err
	}
	t.end()
	return info(r.Info, name)
}

// Identify identifies the file at a path, following links.
func (g *Guest) Identify(ctx context.Context, name string) (wire.FileID, error) {
	t, r, err := g.file(ctx, wire.File{Op: wire.Identify, Path: []byte(name)})
	if err != nil {
		return wire.FileID{}, err
	}
	t.end()
	if r.ID == nil || r.ID.Boot == "" {
		return wire.FileID{}, protocolError("a file without an identity")
	}
	return *r.ID, nil
}

// Change carries out a file operation without content.
func (g *Guest) Change(ctx context.Context, c provider.Change) error {
	op, ok := changes[c.Op]
	if !ok {
		return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("unknown change %q", c.Op)}
	}
	t, _, err := g.file(ctx, wire.File{
		Op: op, Path: []byte(c.Path), Target: []byte(c.Target), Mode: uint32(c.Mode), Owner: []byte(c.Owner), All: c.Recursive,
	})
	if err != nil {
		return err
	}
	t.end()
	return nil
}

var changes = map[string]string{
	provider.ChangeMkdir: wire.Mkdir, provider.ChangeRemove: wire.Remove, provider.ChangeRename: wire.Rename,
	provider.ChangeSymlink: wire.Symlink, provider.ChangeChmod: wire.Chmod, provider.ChangeChown: wire.Chown,
}

// Open reads length bytes of a regular file from offset on, or everything if length is negative.
func (g *Guest) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error) {
	t, r, err := g.file(ctx, wire.File{Op: wire.Read, Path: []byte(name), Offset: offset, Length: length})
	if err != nil {
		return nil, fumehood.FileInfo{}, err
	}
	i, err := info(r.Info, name)
	if err != nil {
		t.end()
		return nil, i, err
	}
	in := t.incoming()
	in.expect(i.Size - offset)
	return in, i, nil
}

// Download reads a path as a tar stream.
func (g *Guest) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	t, _, err := g.file(ctx, wire.File{Op: wire.Download, Path: []byte(path)})
	if err != nil {
		return nil, err
	}
	return t.incoming(), nil
}

// incoming reads content that the guest sends.
type incoming struct {
	*transfer
	wire.Content
	received int64
}

// expect offers the guest shared memory if size bytes of content are enough for that.
func (r *incoming) expect(size int64) {
	if size >= wire.ShareFrom {
		r.s.Share(r.Channel)
	}
}

// Read reads content.
func (r *incoming) Read(p []byte) (int, error) {
	n, err := r.Content.Read(p)
	r.received += int64(n)
	r.expect(r.received)
	return n, err
}

// incoming returns a reader of the content that follows. It is an error if the stream ends before the content does.
func (t *transfer) incoming() *incoming {
	return &incoming{transfer: t, Content: wire.Content{Stream: t.s, Channel: wire.Stdout, Wrong: func(ev wire.Event, err error) error {
		switch {
		case err != nil:
			return t.failure(err)
		case ev.Type != wire.Message:
			return protocolError("content on channel %d", ev.Channel)
		}
		if _, err := decodeReply(ev.Payload); err != nil {
			return err
		}
		return protocolError("an answer in the middle of content")
	}}}
}

// Close abandons the rest of the content.
func (r *incoming) Close() error {
	r.end()
	return nil
}

// Write creates or replaces a regular file of size bytes.
func (g *Guest) Write(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	n, err := g.send(ctx, wire.File{
		Op: wire.Write, Path: []byte(path), Mode: uint32(opts.Mode.Perm()), Owner: []byte(opts.Owner), Atomic: opts.Atomic, ModTime: nanos(opts.ModTime),
	}, r, size)
	if err == nil && n < size {
		err = &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the content ended after %d of %d bytes", n, size)}
	}
	return err
}

// nanos returns a time for wire.File.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Upload extracts a tar stream into a directory.
func (g *Guest) Upload(ctx context.Context, dir string, tar io.Reader) error {
	_, err := g.send(ctx, wire.File{Op: wire.Upload, Path: []byte(dir)}, tar, -1)
	return err
}

// send sends content, and waits for the guest's answer. A negative size means everything that r has. If the content is
// shorter than size, send ends the stream early, so that the guest does not complete the file.
func (g *Guest) send(ctx context.Context, req wire.File, r io.Reader, size int64) (sent int64, err error) {
	t, _, err := g.file(ctx, req)
	if err != nil {
		return 0, err
	}
	defer t.end()
	sent, rerr, serr := t.s.SendFrom(wire.Stdin, r, size)
	switch {
	case serr != nil:
		return sent, t.refusal(serr)
	case rerr != nil:
		return sent, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("read the content: %w", rerr)}
	case sent < size:
		return sent, nil
	}
	if err := t.s.SendEnd(wire.Stdin); err != nil {
		return sent, t.refusal(err)
	}
	_, err = t.reply()
	return sent, err
}

// refusal returns why the guest accepts no more content: the error that it sent before it closed the stream, if any.
func (t *transfer) refusal(err error) error {
	if _, err := t.reply(); err != nil {
		return err
	}
	return t.failure(err)
}
