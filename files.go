package fumehood

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
)

// As returns the same service as another of its users has it: commands whose User is empty run as that
// user, and files are read and changed with that user's rights. user is as in Cmd.User; empty means the
// service's own. Whether there is such a user shows with the first use, as an ErrUserNotFound.
func (s *Service) As(user string) *Service {
	as := *s
	as.user = user
	return &as
}

// ViaEngine returns the same service as it is reached without the help of anything in the sandbox: every command is as
// with Cmd.ViaEngine, and files are read and written by the Engine's archive calls under docker, with what these cannot do
// (docs/promises.md). It is for what must not trust the code under test. The other providers have no helper in the
// sandbox for files, and read them as ever.
func (s *Service) ViaEngine() *Service {
	direct := *s
	direct.direct = true
	return &direct
}

// ReadFile returns a regular file's content. Links are followed inside the sandbox only. A file over
// MaxReadFile is an ErrTooLarge.
func (s *Service) ReadFile(ctx context.Context, path string) (_ []byte, err error) {
	const op = "read"
	r, info, err := s.open(ctx, op, path, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer func() { r.refuse(err) }()
	tooLarge := func() error {
		return &Error{
			Op: op, Service: s.info.Name, Path: path, Class: ErrTooLarge,
			Err: fmt.Errorf("larger than the limit of %d bytes", MaxReadFile), Hint: "use Open or ReadRange",
		}
	}
	if info.Size > MaxReadFile {
		return nil, tooLarge()
	}
	data, err := readAll(io.LimitReader(r, MaxReadFile+1), info.Size)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxReadFile {
		return nil, tooLarge()
	}
	return data, nil
}

// ReadRange returns length bytes of a regular file from offset on: fewer where the file ends before, none
// where it ends before offset. A length over MaxReadFile is an ErrTooLarge. Links are followed as by
// ReadFile.
func (s *Service) ReadRange(ctx context.Context, path string, offset, length int64) ([]byte, error) {
	const op = "read"
	switch {
	case offset < 0 || length < 0:
		return nil, &Error{Op: op, Service: s.info.Name, Path: path, Class: ErrConfig, Err: fmt.Errorf("the offset %d or the length %d is negative", offset, length)}
	case length > MaxReadFile:
		return nil, &Error{
			Op: op, Service: s.info.Name, Path: path, Class: ErrTooLarge,
			Err: fmt.Errorf("the length %d is larger than the limit of %d bytes", length, MaxReadFile), Hint: "read it in parts, or use Open",
		}
	}
	r, _, err := s.open(ctx, op, path, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(io.LimitReader(r, length), length)
}

// readAll reads to the end. The size is what the sandbox says: memory is taken as content comes, at most
// four times as much, and the size only keeps the last piece from being larger than needed.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const first = 1 << 20
	data := make([]byte, 0, max(512, min(size+1, first)))
	for {
		if len(data) == cap(data) {
			grown := 4 * cap(data)
			if size >= int64(len(data)) && size < int64(grown) {
				grown = int(size) + 1 // so that the end is seen without another piece
			}
			data = append(make([]byte, 0, grown), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

// Open returns a regular file's content as a stream, which is to be closed, and the file's description as
// it was when it was opened. Links are followed as by ReadFile. A read after the end of ctx fails.
func (s *Service) Open(ctx context.Context, path string) (io.ReadCloser, FileInfo, error) {
	r, info, err := s.open(ctx, "read", path, 0, -1)
	if err != nil {
		return nil, FileInfo{}, err // and not a content that is nil
	}
	return r, info, nil
}

func (s *Service) open(ctx context.Context, op, path string, offset, length int64) (_ *content, _ FileInfo, err error) {
	record := s.file(op, path, "")
	defer func() {
		if err != nil {
			record.end(err)
		}
	}()
	abs, err := s.gate(op, path)
	if err != nil {
		return nil, FileInfo{}, err
	}
	r, info, err := s.files().Open(ctx, abs, offset, length)
	if err != nil {
		return nil, FileInfo{}, classify(ctx, err, op, s.info.Name, path)
	}
	return s.content(ctx, r, record, op, path), info, nil
}

// content is an open file whose errors are told as this package tells them. When it is closed, it is taken down
// what has become of it.
type content struct {
	io.ReadCloser
	failure func(error) error // gives errors their class
	record  *fileOp

	mu  sync.Mutex
	err error // the first one
}

func (s *Service) content(ctx context.Context, r io.ReadCloser, record *fileOp, op, path string) *content {
	return &content{ReadCloser: r, record: record, failure: func(err error) error {
		return classify(ctx, err, op, s.info.Name, path)
	}}
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.record.add(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.failure(err)
		c.refuse(err)
	}
	return n, err
}

// refuse notes why the content is not had.
func (c *content) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *content) Close() error {
	err := c.ReadCloser.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.end(c.err)
	return err
}

// WriteFile makes or replaces a regular file, and the directories above it that are missing.
func (s *Service) WriteFile(ctx context.Context, path string, data []byte, opts WriteOptions) error {
	return s.WriteFrom(ctx, path, bytes.NewReader(data), int64(len(data)), opts)
}

// WriteFrom is WriteFile with exactly size bytes from a reader. A reader that has fewer is an ErrConfig, and so is a
// negative size.
func (s *Service) WriteFrom(ctx context.Context, path string, r io.Reader, size int64, opts WriteOptions) (err error) {
	const op = "write"
	record := s.file(op, path, "")
	defer func() { record.end(err) }()
	abs, err := s.gate(op, path, opts.Owner)
	if err != nil {
		return err
	}
	if opts.Owner != "" {
		if err := s.checkOwner(op, path, opts.Owner); err != nil {
			return err
		}
	}
	if size < 0 {
		return &Error{Op: op, Service: s.info.Name, Path: path, Class: ErrConfig, Err: fmt.Errorf("a file of %d bytes", size)}
	}
	if opts.Mode == 0 {
		opts.Mode = 0o644
	}
	if opts.Mode.Perm() != opts.Mode {
		return &Error{Op: op, Service: s.info.Name, Path: path, Class: ErrConfig, Err: fmt.Errorf("mode %v has more than permission bits", opts.Mode)}
	}
	return classify(ctx, s.files().Write(ctx, abs, record.count(r), size, opts), op, s.info.Name, path)
}

// Stat describes path. Where path is a link, it describes the link.
func (s *Service) Stat(ctx context.Context, path string) (_ FileInfo, err error) {
	const op = "stat"
	record := s.file(op, path, "")
	defer func() { record.end(err) }()
	abs, err := s.gate(op, path)
	if err != nil {
		return FileInfo{}, err
	}
	info, err := s.files().Stat(ctx, abs)
	return info, classify(ctx, err, op, s.info.Name, path)
}

// Mkdir makes a directory. One that is there is an ErrExists, unless opts says Parents.
func (s *Service) Mkdir(ctx context.Context, path string, opts MkdirOptions) error {
	if opts.Mode == 0 {
		opts.Mode = 0o755
	}
	return s.change(ctx, Change{Op: ChangeMkdir, Path: path, Mode: opts.Mode, All: opts.Parents})
}

// Remove removes a file, a link or an empty directory; with Recursive, a directory with all that is in it.
// Links are removed, never followed. What is not there is an ErrNotFound, a directory that is not empty an
// ErrNotEmpty. When it fails half way, a part is gone.
func (s *Service) Remove(ctx context.Context, path string, opts RemoveOptions) error {
	return s.change(ctx, Change{Op: ChangeRemove, Path: path, All: opts.Recursive})
}

// Rename gives what is at from, a link included, the path to. It replaces a file there, and a directory
// only by a directory, where it is empty; else the error is an ErrExists, an ErrNotEmpty, an
// ErrIsDirectory or an ErrNotDirectory, as the kernel says. Between file systems it is ErrUnsupported.
func (s *Service) Rename(ctx context.Context, from, to string) error {
	abs, err := s.gate(ChangeRename, to)
	if err != nil {
		return err
	}
	return s.change(ctx, Change{Op: ChangeRename, Path: from, Target: abs})
}

// Symlink makes path a link that says target, which need not exist. A relative target is relative to the
// link's directory. What is at path already is an ErrExists.
func (s *Service) Symlink(ctx context.Context, target, path string) error {
	return s.change(ctx, Change{Op: ChangeSymlink, Path: path, Target: target})
}

// Chmod sets the permission, set-id and sticky bits of path, or of what it points to where it is a link.
func (s *Service) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return s.change(ctx, Change{Op: ChangeChmod, Path: path, Mode: mode})
}

// Chown gives path, or the link itself where it is one, to owner, which is as in Cmd.User. Without a group
// it becomes the user's own, or 0 where the service does not know the user's number.
func (s *Service) Chown(ctx context.Context, path, owner string) error {
	if err := s.checkOwner(ChangeChown, path, owner); err != nil {
		return err
	}
	return s.change(ctx, Change{Op: ChangeChown, Path: path, Owner: owner})
}

// ChownAll is Chown of path and of all that is below it. No link is followed, whoever puts some there meanwhile. When it
// fails half way, a part is the owner's.
func (s *Service) ChownAll(ctx context.Context, path, owner string) error {
	if err := s.checkOwner(ChangeChown, path, owner); err != nil {
		return err
	}
	return s.change(ctx, Change{Op: ChangeChown, Path: path, Owner: owner, All: true})
}

// change checks c, whose path is as the caller gave it, and has it done.
func (s *Service) change(ctx context.Context, c Change) (err error) {
	given := c.Path
	record := s.file(c.Op, given, c.Target)
	defer func() { record.end(err) }()
	if c.Path, err = s.gate(c.Op, given, c.Target, c.Owner); err != nil {
		return err
	}
	if c.Mode != c.Mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) {
		return &Error{Op: c.Op, Service: s.info.Name, Path: given, Class: ErrConfig, Err: fmt.Errorf("mode %v has more than permission, set-id and sticky bits", c.Mode)}
	}
	if ctx.Err() != nil {
		return cancelled(ctx, c.Op, s.info.Name)
	}
	err = s.files().Change(ctx, c)
	var why *Error
	if c.Op == ChangeRename && errors.As(err, &why) { // either path may be the reason
		err = &Error{Class: why.Class, Err: fmt.Errorf("to %s: %w", c.Target, cmp.Or(why.Err, why.Class)), Hint: why.Hint}
	}
	return classify(ctx, err, c.Op, s.info.Name, given)
}

// checkOwner refuses an owner that names nobody: "", ":group", "user:".
func (s *Service) checkOwner(op, path, owner string) error {
	user, group, hasGroup := strings.Cut(owner, ":")
	if user == "" || hasGroup && group == "" {
		return &Error{Op: op, Service: s.info.Name, Path: path, Class: ErrConfig, Err: fmt.Errorf("the owner %q lacks a user or a group", owner)}
	}
	return nil
}

// Upload extracts a tar stream into dir, a directory that exists.
func (s *Service) Upload(ctx context.Context, dir string, tar io.Reader) (err error) {
	const op = "upload to"
	record := s.file("upload", dir, "")
	defer func() { record.end(err) }()
	abs, err := s.gate(op, dir)
	if err != nil {
		return err
	}
	return classify(ctx, s.files().Upload(ctx, abs, record.count(tar)), op, s.info.Name, dir)
}

// Download returns path, a file or a tree, as a tar stream whose first entry is named like path's last
// element. The stream is the sandbox's word: names and links in it are not to be trusted. A pipe, a socket or
// a device in the tree is an ErrNotRegular, of Read at the latest; by the Engine's exec it is in the stream as
// what it is, but for sockets, which the Engine leaves out.
func (s *Service) Download(ctx context.Context, path string) (_ io.ReadCloser, err error) {
	const op = "download"
	record := s.file(op, path, "")
	defer func() {
		if err != nil {
			record.end(err)
		}
	}()
	abs, err := s.gate(op, path)
	if err != nil {
		return nil, err
	}
	r, err := s.files().Download(ctx, abs)
	if err != nil {
		return nil, classify(ctx, err, op, s.info.Name, path)
	}
	return s.content(ctx, r, record, op, path), nil
}

// files are the service's as its user, or as whoever ViaEngine made it, reaches them.
func (s *Service) files() FileBackend {
	if be, ok := s.be.(DirectFiler); ok && s.direct {
		return be.DirectFiles(s.user)
	}
	return s.be.Files(s.user)
}

// gate checks that files can be reached at all and makes path absolute. Neither the path nor what else is
// said may contain a NUL byte.
func (s *Service) gate(op, path string, said ...string) (string, error) {
	if err := s.sb.check(op, s.info.Name); err != nil {
		return "", err
	}
	bad := func(format string, a ...any) error {
		return &Error{Op: op, Service: s.info.Name, Path: path, Class: ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return "", bad("the path %q is empty or contains a NUL byte", path)
	}
	for _, text := range append(said, s.user) {
		if strings.ContainsRune(text, 0) {
			return "", bad("%q contains a NUL byte", text)
		}
	}
	return s.abs(path), nil
}
