package server

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/session/workspace"
)

// OnPath is the input of requests about a file.
type OnPath struct {
	In
	Path string `query:"path" required:"true" minLength:"1" doc:"absolute, or relative to the service's directory"`
}

// Bounded is the input of requests whose answer is as large as the sandbox makes it.
type Bounded struct {
	OnPath
	MaxBytes int64 `query:"max_bytes" minimum:"-1" doc:"largest answer in bytes: one that is larger is an error, or the connection breaks if the answer has begun; 0 means 10 GiB, -1 no limit"`
}

// limit returns content of a size, -1 if that is unknown, of which only MaxBytes can be read.
func (b *Bounded) limit(content io.ReadCloser, size int64, err error) (io.ReadCloser, error) {
	most := cmp.Or(b.MaxBytes, workspace.Limits{}.WithDefaults().Bytes)
	if err != nil || most < 0 {
		return content, err
	}
	if size > most {
		return nil, errors.Join(tooLarge(b.Path, most), content.Close())
	}
	return &limited{content, b.Path, most, most}, nil
}

func tooLarge(path string, most int64) error {
	return &fumehood.Error{Op: "read", Path: path, Class: fumehood.ErrTooLarge, Err: fmt.Errorf("more than %d bytes", most), Hint: "read less, or raise max_bytes"}
}

// limited is content with a limit.
type limited struct {
	io.ReadCloser
	path       string
	left, most int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p[:min(int64(len(p))-1, l.left)+1]) // one extra byte shows whether there is more
	if l.left -= int64(n); l.left < 0 {
		l.left = 0
		return 0, tooLarge(l.path, l.most)
	}
	return n, err
}

type fileList struct {
	Files []api.FileInfo `json:"files"`
}

// firstPart is how many bytes of a stream are read before its answer begins, so that a failure in them is the answer.
const firstPart = 64 << 10

// rangeSize is how many bytes of a range are read at a time.
const rangeSize = 4 << 20

func (s *Server) registerFiles() {
	const box = "/v1/sandboxes/{sandbox}"
	registerStream(s, op{http.MethodGet, box + "/file", "read-file", "Read a regular file, or length bytes of it from an offset on", "Files"}, typeBytes, nil, on(readFile))
	register(s, op{http.MethodPut, box + "/file", "write-file", "Write the request's body to a file, and create missing directories above it", "Files"}, on(writeFile))
	registerStream(s, op{http.MethodGet, box + "/archive", "read-archive", "Read a file or a tree as a tar archive", "Files"}, typeTar, nil, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *Bounded) (*huma.StreamResponse, error) {
		content, err := svc.Download(ctx, i.Path)
		content, err = i.limit(content, -1, err)
		return download(typeTar, content, -1, err)
	}))
	register(s, op{http.MethodPut, box + "/archive", "write-archive", "Extract the request's body, a tar archive, into a directory", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *OnPath) (*struct{}, error) {
		return nil, bodyError(svc.Upload(ctx, i.Path, requestOf(ctx).body))
	}))
	register(s, op{http.MethodGet, box + "/stat", "stat-file", "Describe a file. A link is not followed", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *OnPath) (*output[api.FileInfo], error) {
		f, err := svc.Stat(ctx, i.Path)
		return &output[api.FileInfo]{api.FileInfoOf(f)}, err
	}))
	register(s, op{http.MethodGet, box + "/list", "list-directory", "Describe the entries of a directory, sorted by name", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *OnPath) (*output[fileList], error) {
		entries, err := svc.List(ctx, i.Path)
		files := make([]api.FileInfo, len(entries))
		for n, entry := range entries {
			files[n] = api.FileInfoOf(entry)
		}
		return &output[fileList]{fileList{files}}, err
	}))
	registerStream(s, op{http.MethodGet, box + "/walk", "walk-tree", "Describe a path and everything below it, a line for each file. A line with error is about a path, or the last", "Files"}, typeLines, walked{}, on(walk))
	s.registerChanges(box)
}

// registerChanges adds the operations that change files without content.
func (s *Server) registerChanges(box string) {
	register(s, op{http.MethodPost, box + "/mkdir", "make-directory", "Create a directory", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *struct {
		In
		Body struct {
			Path    api.Text `json:"path"`
			Mode    int      `json:"mode,omitempty" minimum:"0" maximum:"4095" doc:"0 means 0755, 493"`
			Parents bool     `json:"parents,omitempty" doc:"create missing parents; an existing directory is no error"`
			Owner   string   `json:"owner,omitempty" doc:"owner of the directories that are created"`
		}
	},
	) (*struct{}, error) {
		return nil, svc.Mkdir(ctx, string(i.Body.Path), fumehood.MkdirOptions{Mode: api.Mode(i.Body.Mode), Parents: i.Body.Parents, Owner: i.Body.Owner})
	}))
	register(s, op{http.MethodPost, box + "/remove", "remove-file", "Remove a file, a link or an empty directory or, with recursive, a tree", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *struct {
		In
		Body struct {
			Path      api.Text `json:"path"`
			Recursive bool     `json:"recursive,omitempty"`
		}
	},
	) (*struct{}, error) {
		return nil, svc.Remove(ctx, string(i.Body.Path), fumehood.RemoveOptions{Recursive: i.Body.Recursive})
	}))
	register(s, op{http.MethodPost, box + "/rename", "rename-file", "Move a file or directory. It replaces a file, or an empty directory", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *struct {
		In
		Body struct {
			Path api.Text `json:"path"`
			To   api.Text `json:"to"`
		}
	},
	) (*struct{}, error) {
		return nil, svc.Rename(ctx, string(i.Body.Path), string(i.Body.To))
	}))
	register(s, op{http.MethodPost, box + "/chmod", "change-mode", "Set the mode of a file. A link is followed", "Files"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, i *struct {
		In
		Body struct {
			Path api.Text `json:"path"`
			Mode int      `json:"mode,omitempty" minimum:"0" maximum:"4095"`
		}
	},
	) (*struct{}, error) {
		return nil, svc.Chmod(ctx, string(i.Body.Path), api.Mode(i.Body.Mode))
	}))
}

// walked is a line of a walk.
type walked struct {
	api.FileInfo
	Error *api.Error `json:"error,omitempty"`
}

func walk(ctx context.Context, _ *lease, svc fumehood.Service, i *OnPath) (*huma.StreamResponse, error) {
	return lines(func(send func(any) error) {
		for entry, err := range svc.Walk(ctx, i.Path) {
			w := walked{FileInfo: api.FileInfoOf(entry.FileInfo)}
			w.Path = api.Text(entry.Path)
			if err != nil {
				w.Error = new(errorOf(err))
			}
			if send(w) != nil {
				return
			}
		}
	}), nil
}

// download answers with a stream of a size, -1 if that is unknown. A failure after its first part breaks the connection, so
// that the client cannot take a part for the whole.
func download(contentType string, content io.ReadCloser, size int64, err error) (*huma.StreamResponse, error) {
	if err != nil {
		return nil, err
	}
	stream := bufio.NewReaderSize(content, firstPart)
	start, err := stream.Peek(firstPart)
	switch {
	case err == io.EOF:
		size = int64(len(start)) // whatever the size is said to be: the kernel says 0 or 4096 of its own files
	case err != nil: // nothing has been sent: it is the answer
		content.Close()
		return nil, err
	case size < firstPart:
		size = -1 // it has more
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer content.Close()
		c.SetHeader("Content-Type", contentType)
		if size >= 0 {
			c.SetHeader("Content-Length", strconv.FormatInt(size, 10))
		}
		var body io.Reader = stream
		if size >= 0 {
			body = io.LimitReader(stream, size) // it may have grown
		}
		n, err := io.Copy(c.BodyWriter(), body)
		if err != nil || size >= 0 && n != size {
			panic(http.ErrAbortHandler) //nolint:forbidigo // as package net/http wants it
		}
	}}, nil
}

type readInput struct {
	Bounded
	Offset int64 `query:"offset" minimum:"0" doc:"bytes to skip"`
	Length int64 `query:"length" minimum:"-1" default:"-1" doc:"maximum number of bytes; -1 means all"`
}

func readFile(ctx context.Context, _ *lease, svc fumehood.Service, i *readInput) (*huma.StreamResponse, error) {
	if i.Offset == 0 && i.Length < 0 {
		content, info, err := svc.Open(ctx, i.Path)
		content, err = i.limit(content, info.Size, err)
		answer, err := download(typeBytes, content, info.Size, err)
		if err != nil {
			return nil, err
		}
		described, err := json.Marshal(api.FileInfoOf(info))
		if err != nil {
			return nil, err
		}
		send := answer.Body
		answer.Body = func(c huma.Context) {
			c.SetHeader(api.HeaderFile, base64.StdEncoding.EncodeToString(described))
			send(c)
		}
		return answer, nil
	}
	length := i.Length
	if length < 0 {
		length = math.MaxInt64 - i.Offset
	}
	if length == 0 { // the content would not be read
		if _, err := svc.ReadRange(ctx, i.Path, i.Offset, 0); err != nil {
			return nil, err
		}
	}
	r := ranges(func(at, n int64) ([]byte, error) { return svc.ReadRange(ctx, i.Path, at, n) })
	content := bufio.NewReaderSize(io.NewSectionReader(r, i.Offset, length), rangeSize)
	limit, err := i.limit(io.NopCloser(content), -1, nil)
	return download(typeBytes, limit, -1, err)
}

// ranges reads a file by ranges.
type ranges func(at, n int64) ([]byte, error)

// ReadAt implements io.ReaderAt.
func (r ranges) ReadAt(p []byte, at int64) (int, error) {
	part, err := r(at, int64(len(p)))
	if err == nil && len(part) < len(p) {
		err = io.EOF
	}
	return copy(p, part), err
}

type writeInput struct {
	OnPath
	Mode   int    `query:"mode" minimum:"0" maximum:"511" doc:"permission bits of a new file; 0 means 0644, 420"`
	Owner  string `query:"owner" doc:"owner of the file, and of missing directories above it"`
	Atomic bool   `query:"atomic" doc:"replace the file as a whole, or not at all"`

	Modified time.Time `query:"modified" doc:"when the file was last changed; by default now"`
}

// spool is a file that holds an upload without a length. Its bytes are counted until it is closed.
type spool struct {
	*os.File
	all  *semaphore.Weighted
	size int64
}

// Write fails if all uploads together have too many bytes.
func (f *spool) Write(p []byte) (int, error) {
	if !f.all.TryAcquire(int64(len(p))) {
		return 0, &fumehood.Error{
			Op: opRead, Class: fumehood.ErrLimit, Err: errors.New("the uploads without a length that are being received have too many bytes"),
			Hint: "send a Content-Length, or try again",
		}
	}
	f.size += int64(len(p))
	return f.File.Write(p)
}

// Close removes the file.
func (f *spool) Close() error {
	f.all.Release(f.size)
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}

func writeFile(ctx context.Context, l *lease, svc fumehood.Service, i *writeInput) (*struct{}, error) {
	opts := fumehood.WriteOptions{Mode: api.Mode(i.Mode), Owner: i.Owner, Atomic: i.Atomic, ModTime: i.Modified}
	content := requestOf(ctx)
	if content.size >= 0 {
		return nil, bodyError(svc.WriteFrom(ctx, i.Path, content.body, content.size, opts))
	}
	file, err := os.CreateTemp("", "fumehood-upload-*")
	if err != nil {
		return nil, err
	}
	held := &spool{File: file, all: l.s.spooled}
	defer held.Close()
	size, err := io.Copy(struct{ io.Writer }{held}, content.body) // not by the file's own ReadFrom
	if disk := (*os.PathError)(nil); err != nil && !errors.As(err, &disk) && !errors.Is(err, fumehood.ErrLimit) {
		return nil, bodyError(bad("read the content: %w", err))
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	return nil, svc.WriteFrom(ctx, i.Path, file, size, opts)
}

// bodyError makes an error about a body that is too large one of its class.
func bodyError(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &fumehood.Error{Op: opRead, Class: fumehood.ErrTooLarge, Err: refusal{large, "max-upload"}, Hint: "send less, or start the server with a higher --max-upload"}
	}
	return err
}
