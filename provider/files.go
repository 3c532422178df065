package provider

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

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
)

func (s *service) As(user string) fumehood.Service {
	as := *s
	as.user = user
	return &as
}

func (s *service) ViaEngine() fumehood.Service {
	direct := *s
	direct.direct = true
	return &direct
}

func (s *service) ReadFile(ctx context.Context, path string, opts fumehood.ReadOptions) (_ []byte, err error) {
	const op = "read"
	limit := cmp.Or(opts.Limit, fumehood.MaxReadFile)
	if limit < 0 {
		return nil, &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf("the limit %d is negative", limit)}
	}
	r, info, err := s.openFile(ctx, op, path, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer func() { r.refuse(err) }()
	tooLarge := func() error {
		return &fumehood.Error{
			Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrTooLarge,
			Err: fmt.Errorf("larger than the limit of %d bytes", limit), Hint: "use Open or ReadRange, or raise the limit",
		}
	}
	if info.Size > limit {
		return nil, tooLarge()
	}
	data, err := readAll(io.LimitReader(r, max(limit, limit+1)), info.Size) // limit+1 may overflow
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, tooLarge()
	}
	return data, nil
}

func (s *service) ReadRange(ctx context.Context, path string, offset, length int64) ([]byte, error) {
	const op = "read"
	switch {
	case offset < 0 || length < 0:
		return nil, &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf("the offset %d or the length %d is negative", offset, length)}
	case length > fumehood.MaxReadFile:
		return nil, &fumehood.Error{
			Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrTooLarge,
			Err: fmt.Errorf("the length %d is larger than the limit of %d bytes", length, fumehood.MaxReadFile), Hint: "read it in parts, or use Open",
		}
	}
	r, info, err := s.openFile(ctx, op, path, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(io.LimitReader(r, length), min(info.Size-offset, length))
}

// readAll reads to the end. The size comes from the sandbox and is not trusted: memory is allocated as content arrives,
// up to four times the content, and up to the default limit after the first 4 MiB. A sandbox that sends so much could
// send the rest as well, from a sparse file. To grow in small steps took 20 ms of the 50 in a loop of reads of 50 MiB.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const first, small = 4 << 20, 256 << 10
	data := make([]byte, 0, max(512, min(size+1, first)))
	for {
		if len(data) == cap(data) {
			grown := max(4*cap(data), min(int(size)+1, fumehood.MaxReadFile))
			if size >= int64(len(data)) && size < int64(grown) {
				grown = int(size) + 1 // the end is detected without another allocation
			}
			data = append(make([]byte, 0, grown), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == nil {
			continue
		}
		if cap(data)/4 > max(len(data), small) {
			data = bytes.Clone(data) // so that the caller does not keep what the lie has cost
		}
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		return data, err
	}
}

func (s *service) Open(ctx context.Context, path string) (io.ReadCloser, fumehood.FileInfo, error) {
	r, info, err := s.openFile(ctx, "read", path, 0, -1)
	if err != nil {
		return nil, fumehood.FileInfo{}, err // not a nil *content in the interface
	}
	return r, info, nil
}

func (s *service) openFile(ctx context.Context, op, path string, offset, length int64) (_ *content, _ fumehood.FileInfo, err error) {
	record := s.file(op, path, "")
	defer func() {
		if err != nil {
			record.record(err)
		}
	}()
	abs, err := s.gate(op, path)
	if err != nil {
		return nil, fumehood.FileInfo{}, err
	}
	r, info, err := s.files().Open(ctx, abs, offset, length)
	if err != nil {
		return nil, fumehood.FileInfo{}, classify(ctx, err, op, s.info.Name, path)
	}
	return s.content(ctx, r, record, op, path), info, nil
}

// content is an open file that classifies its errors. Closing it records the operation in the journal.
type content struct {
	io.ReadCloser
	failure func(error) error // adds the class to errors
	record  *fileOp

	mu  sync.Mutex
	err error // the first error
}

func (s *service) content(ctx context.Context, r io.ReadCloser, record *fileOp, op, path string) *content {
	return &content{ReadCloser: r, record: record, failure: func(err error) error {
		return classify(ctx, err, op, s.info.Name, path)
	}}
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.record.addBytes(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.failure(err)
		c.refuse(err)
	}
	return n, err
}

// refuse records why the content could not be read. The first error counts.
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
	c.record.record(c.err)
	return err
}

func (s *service) WriteFile(ctx context.Context, path string, data []byte, opts fumehood.WriteOptions) error {
	return s.WriteFrom(ctx, path, bytes.NewReader(data), int64(len(data)), opts)
}

func (s *service) WriteFrom(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) (err error) {
	const op = "write"
	record := s.file(op, path, "")
	defer func() { record.record(err) }()
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
		return &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf("the size %d is negative", size)}
	}
	if opts.Mode == 0 {
		opts.Mode = 0o644
	}
	if opts.Mode.Perm() != opts.Mode {
		return &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf("mode %v has more than permission bits", opts.Mode)}
	}
	return classify(ctx, s.files().Write(ctx, abs, record.count(r), size, opts), op, s.info.Name, path)
}

func (s *service) Stat(ctx context.Context, path string) (_ fumehood.FileInfo, err error) {
	const op = "stat"
	record := s.file(op, path, "")
	defer func() { record.record(err) }()
	abs, err := s.gate(op, path)
	if err != nil {
		return fumehood.FileInfo{}, err
	}
	info, err := s.files().Stat(ctx, abs)
	return info, classify(ctx, err, op, s.info.Name, path)
}

func (s *service) Mkdir(ctx context.Context, path string, opts fumehood.MkdirOptions) error {
	if opts.Mode == 0 {
		opts.Mode = 0o755
	}
	if opts.Owner != "" {
		if err := s.checkOwner(ChangeMkdir, path, opts.Owner); err != nil {
			return err
		}
	}
	return s.change(ctx, Change{Op: ChangeMkdir, Path: path, Mode: opts.Mode, Recursive: opts.Parents, Owner: opts.Owner})
}

func (s *service) Remove(ctx context.Context, path string, opts fumehood.RemoveOptions) error {
	return s.change(ctx, Change{Op: ChangeRemove, Path: path, Recursive: opts.Recursive})
}

func (s *service) Rename(ctx context.Context, from, to string) error {
	abs, err := s.gate(ChangeRename, to)
	if err != nil {
		return err
	}
	return s.change(ctx, Change{Op: ChangeRename, Path: from, Target: abs})
}

func (s *service) Symlink(ctx context.Context, target, path string) error {
	return s.change(ctx, Change{Op: ChangeSymlink, Path: path, Target: target})
}

func (s *service) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return s.change(ctx, Change{Op: ChangeChmod, Path: path, Mode: mode})
}

func (s *service) Chown(ctx context.Context, path, owner string) error {
	if err := s.checkOwner(ChangeChown, path, owner); err != nil {
		return err
	}
	return s.change(ctx, Change{Op: ChangeChown, Path: path, Owner: owner})
}

func (s *service) ChownAll(ctx context.Context, path, owner string) error {
	if err := s.checkOwner(ChangeChown, path, owner); err != nil {
		return err
	}
	return s.change(ctx, Change{Op: ChangeChown, Path: path, Owner: owner, Recursive: true})
}

// change checks c, whose path is as given by the caller, and performs it.
func (s *service) change(ctx context.Context, c Change) (err error) {
	given := c.Path
	record := s.file(c.Op, given, c.Target)
	defer func() { record.record(err) }()
	if c.Path, err = s.gate(c.Op, given, c.Target, c.Owner); err != nil {
		return err
	}
	if c.Mode != c.Mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) {
		return &fumehood.Error{Op: c.Op, Service: s.info.Name, Path: given, Class: fumehood.ErrConfig, Err: fmt.Errorf("mode %v has more than permission, set-id and sticky bits", c.Mode)}
	}
	if ctx.Err() != nil {
		return canceledError(ctx, c.Op, s.info.Name)
	}
	err = s.files().Change(ctx, c)
	var why *fumehood.Error
	if c.Op == ChangeRename && errors.As(err, &why) { // the error may be about either path
		err = &fumehood.Error{Class: why.Class, Err: fmt.Errorf("to %s: %w", c.Target, cmp.Or(why.Err, why.Class)), Hint: why.Hint}
	}
	return classify(ctx, err, c.Op, s.info.Name, given)
}

// checkOwner rejects an owner without a user or with an empty group: "", ":group", "user:".
func (s *service) checkOwner(op, path, owner string) error {
	user, group, hasGroup := strings.Cut(owner, ":")
	if user == "" || hasGroup && group == "" {
		return &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf("the owner %q lacks a user or a group", owner)}
	}
	return nil
}

func (s *service) Upload(ctx context.Context, dir string, tar io.Reader) (err error) {
	const op = "upload to"
	record := s.file("upload", dir, "")
	defer func() { record.record(err) }()
	abs, err := s.gate(op, dir)
	if err != nil {
		return err
	}
	return classify(ctx, s.files().Upload(ctx, abs, record.count(tar)), op, s.info.Name, dir)
}

func (s *service) Download(ctx context.Context, path string) (_ io.ReadCloser, err error) {
	const op = "download"
	record := s.file(op, path, "")
	defer func() {
		if err != nil {
			record.record(err)
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

// files returns the service's files for its user, bypassing the helper in the sandbox after ViaEngine.
func (s *service) files() FileBackend {
	if be, ok := s.be.(EngineFiler); ok && s.direct {
		return be.EngineFiles(s.user)
	}
	return s.be.Files(s.user)
}

// gate checks that the sandbox is open and makes path absolute. Neither path nor the other arguments may contain a
// NUL byte.
func (s *service) gate(op, path string, details ...string) (string, error) {
	if err := s.sb.check(op, s.info.Name); err != nil {
		return "", err
	}
	bad := func(format string, a ...any) error {
		return &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return "", bad("the path %q is empty or contains a NUL byte", path)
	}
	for _, text := range append(details, s.user) {
		if strings.ContainsRune(text, 0) {
			return "", bad("%q contains a NUL byte", text)
		}
	}
	if err := files.CheckIDs(s.user); err != nil {
		return "", &fumehood.Error{Op: op, Service: s.info.Name, Path: path, Class: fumehood.ErrUserNotFound, Err: err}
	}
	return s.abs(path), nil
}
