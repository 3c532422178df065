package workers

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// files are the files of a service, for a user.
type files struct {
	s    *service
	user string
}

func (f *files) request(method, path, file string) *request {
	r := f.s.request(method, path, f.user)
	if file != "" {
		r.query.Set("path", file)
	}
	return r
}

func (f *files) Stat(ctx context.Context, path string) (fumehood.FileInfo, error) {
	var info api.FileInfo
	err := f.s.sb.w.call(ctx, f.request(http.MethodGet, "/stat", path), &info)
	return infoOf(&info), err
}

// types are the types of files by their names.
var types = map[string]fs.FileMode{
	"file": 0, "directory": fs.ModeDir, "symlink": fs.ModeSymlink, "pipe": fs.ModeNamedPipe, "socket": fs.ModeSocket, "device": fs.ModeDevice,
}

func infoOf(i *api.FileInfo) fumehood.FileInfo {
	kind, ok := types[i.Type]
	if !ok {
		kind = fs.ModeIrregular
	}
	return fumehood.FileInfo{
		Name: string(i.Name), Size: i.Size, Mode: api.Mode(i.Mode) | kind, ModTime: i.Modified, LinkTarget: string(i.Target), UID: i.UID, GID: i.GID,
	}
}

func (f *files) Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error) {
	r := f.request(http.MethodGet, "/file", path)
	r.query.Set("max_bytes", "-1")
	if offset > 0 || length >= 0 {
		r.query.Set("offset", strconv.FormatInt(offset, 10))
		r.query.Set("length", strconv.FormatInt(length, 10))
	}
	body, header, err := f.s.sb.w.open(ctx, r)
	if err != nil {
		return nil, fumehood.FileInfo{}, err
	}
	var info api.FileInfo
	if text := header.Get(api.HeaderFile); text != "" {
		described, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			err = json.Unmarshal(described, &info)
		}
		if err != nil {
			body.Close()
			return nil, fumehood.FileInfo{}, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
		}
	}
	return &content{body, f.s.sb.w.name}, infoOf(&info), nil
}

// content is what a worker sends, whose end is not that of a broken connection.
type content struct {
	io.ReadCloser
	worker string
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: &lostError{c.worker, err, true}}
	}
	return n, err
}

func (f *files) Write(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	req := f.request(http.MethodPut, "/file", path)
	req.query.Set("mode", strconv.Itoa(int(opts.Mode.Perm())))
	if opts.Owner != "" {
		req.query.Set("owner", opts.Owner)
	}
	if opts.Atomic {
		req.query.Set("atomic", "true")
	}
	if !opts.ModTime.IsZero() {
		req.query.Set("modified", opts.ModTime.UTC().Format(time.RFC3339Nano))
	}
	return f.send(ctx, req, r, size)
}

func (f *files) Upload(ctx context.Context, dir string, tar io.Reader) error {
	return f.send(ctx, f.request(http.MethodPut, "/archive", dir), tar, -1)
}

// source is a reader whose errors are the caller's.
type source struct {
	io.Reader
	left int64 // negative if unknown
	err  error
	done chan struct{} // closed when nothing reads any more
}

// Read reads exactly what is left, if that is known.
func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	if s.left > 0 {
		p = p[:min(int64(len(p)), s.left)]
	}
	n, err := s.Reader.Read(p)
	if s.left > 0 {
		s.left -= int64(n)
	}
	switch {
	case err == io.EOF && s.left > 0:
		err = &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the content ends %d bytes before its size", s.left)}
		fallthrough
	case err != nil && err != io.EOF:
		s.err = err
	}
	return n, err
}

// Close is called by package net/http when it reads no more.
func (s *source) Close() error {
	close(s.done)
	return nil
}

// send sends content, whose own errors come before those of the request that they break.
func (f *files) send(ctx context.Context, req *request, r io.Reader, size int64) error {
	s := &source{Reader: r, left: size, done: make(chan struct{})}
	req.from, req.size = s, size
	if size == 0 {
		req.from, req.data = nil, []byte{}
	}
	err := f.s.sb.w.call(ctx, req, nil)
	if lost, ok := asLost(err); !ok || !lost.sent || size == 0 {
		return err
	}
	select {
	case <-s.done:
		if s.err != nil && ctx.Err() == nil {
			return s.err
		}
	case <-ctx.Done():
	}
	return err
}

func (f *files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	r := f.request(http.MethodGet, "/archive", path)
	r.query.Set("max_bytes", "-1")
	body, _, err := f.s.sb.w.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return &content{body, f.s.sb.w.name}, nil
}

// Change changes a file.
func (f *files) Change(ctx context.Context, c provider.Change) error {
	body := map[string]any{"path": api.Text(c.Path)}
	mode := int(c.Mode.Perm())
	for bit, number := range map[fs.FileMode]int{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if c.Mode&bit != 0 {
			mode |= number
		}
	}
	switch c.Op {
	case provider.ChangeMkdir:
		body["mode"], body["parents"], body["owner"] = mode, c.Recursive, c.Owner
	case provider.ChangeRemove:
		body["recursive"] = c.Recursive
	case provider.ChangeRename:
		body["to"] = api.Text(c.Target)
	case provider.ChangeSymlink:
		body["target"] = api.Text(c.Target)
	case provider.ChangeChmod:
		body["mode"] = mode
	case provider.ChangeChown:
		body["owner"], body["recursive"] = c.Owner, c.Recursive
	default:
		return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("unknown operation %q", c.Op)}
	}
	r := f.request(http.MethodPost, "/"+c.Op, "")
	r.json = body
	return f.s.sb.w.call(ctx, r, nil)
}

// line is a line of a walk.
type line struct {
	api.FileInfo
	Error *api.Error `json:"error"`
}

// Walk describes a tree. Of limited depths, it knows those of Stat and List.
func (f *files) Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		var err error
		switch dir, slash := strings.CutSuffix(root, "/."); {
		case depth < 0:
			err = f.walk(ctx, root, yield)
		case depth == 1 && slash:
			err = f.list(ctx, dir+"/", yield)
		case depth == 0:
			var info fumehood.FileInfo
			if info, err = f.Stat(ctx, root); err == nil {
				yield(fumehood.WalkEntry{Path: ".", FileInfo: info}, nil)
			}
		default:
			err = &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("a walk of depth %d", depth)}
		}
		if err != nil {
			yield(fumehood.WalkEntry{}, err)
		}
	}
}

// list yields the entries of a directory.
func (f *files) list(ctx context.Context, dir string, yield func(fumehood.WalkEntry, error) bool) error {
	var found struct {
		Files []api.FileInfo `json:"files"`
	}
	if err := f.s.sb.w.call(ctx, f.request(http.MethodGet, "/list", dir), &found); err != nil {
		return err
	}
	for i := range found.Files {
		info := infoOf(&found.Files[i])
		if !yield(fumehood.WalkEntry{Path: info.Name, FileInfo: info}, nil) {
			break
		}
	}
	return nil
}

// walk yields a tree. It returns the error that ends it.
func (f *files) walk(ctx context.Context, root string, yield func(fumehood.WalkEntry, error) bool) error {
	body, _, err := f.s.sb.w.open(ctx, f.request(http.MethodGet, "/walk", root))
	if err != nil {
		return err
	}
	defer body.Close()
	lines := json.NewDecoder(bufio.NewReaderSize(body, 64<<10))
	for {
		var l line
		if err := lines.Decode(&l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: &lostError{f.s.sb.w.name, err, true}}
		}
		if l.Error != nil && l.Path == "" {
			return errorOf(*l.Error, 0)
		}
		err = nil
		if l.Error != nil {
			err = errorOf(*l.Error, 0)
		}
		if !yield(fumehood.WalkEntry{Path: string(l.Path), FileInfo: infoOf(&l.FileInfo)}, err) {
			return nil
		}
	}
}
