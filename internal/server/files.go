package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// OnPath is the input of requests about a file.
type OnPath struct {
	In
	Path string `query:"path" required:"true" minLength:"1" doc:"absolute, or relative to the service's directory"`
}

type fileList struct {
	Files []api.FileInfo `json:"files"`
}

// rangeSize is how many bytes of a range are read at a time.
const rangeSize = 4 << 20

func (s *Server) registerFiles() {
	const box = "/v1/sandboxes/{sandbox}"
	registerStream(s, op{http.MethodGet, box + "/file", "read-file", "Read a regular file, or length bytes of it from an offset on", "Files"}, typeBytes, nil, s.readFile)
	register(s, op{http.MethodPut, box + "/file", "write-file", "Write the request's body to a file, and create missing directories above it", "Files"}, s.writeFile)
	registerStream(s, op{http.MethodGet, box + "/archive", "read-archive", "Read a file or a tree as a tar archive", "Files"}, typeTar, nil, func(ctx context.Context, i *OnPath) (*huma.StreamResponse, error) {
		return s.download(ctx, i.In, typeTar, func(svc fumehood.Service) (io.ReadCloser, int64, error) {
			r, err := svc.Download(ctx, i.Path)
			return r, -1, err
		})
	})
	register(s, op{http.MethodPut, box + "/archive", "write-archive", "Extract the request's body, a tar archive, into a directory", "Files"}, func(ctx context.Context, i *struct {
		OnPath
		Reads
	},
	) (*struct{}, error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*struct{}, error) { return done(sent(svc.Upload(ctx, i.Path, i.stream))) })
	})
	register(s, op{http.MethodGet, box + "/stat", "stat-file", "Describe a file. A link is not followed", "Files"}, func(ctx context.Context, i *OnPath) (*output[api.FileInfo], error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*output[api.FileInfo], error) {
			f, err := svc.Stat(ctx, i.Path)
			return &output[api.FileInfo]{api.FileInfoOf(f)}, err
		})
	})
	register(s, op{http.MethodGet, box + "/list", "list-directory", "Describe the entries of a directory, sorted by name", "Files"}, func(ctx context.Context, i *OnPath) (*output[fileList], error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*output[fileList], error) {
			entries, err := svc.List(ctx, i.Path)
			files := make([]api.FileInfo, len(entries))
			for n, entry := range entries {
				files[n] = api.FileInfoOf(entry)
			}
			return &output[fileList]{fileList{files}}, err
		})
	})
	registerStream(s, op{http.MethodGet, box + "/walk", "walk-tree", "Describe a path and everything below it, a line for each file. A line with error is about a path, or the last", "Files"}, typeLines, walked{}, s.walk)
	s.registerChanges(box)
}

// registerChanges adds the operations that change files without content.
func (s *Server) registerChanges(box string) {
	register(s, op{http.MethodPost, box + "/mkdir", "make-directory", "Create a directory", "Files"}, func(ctx context.Context, i *struct {
		In
		Body struct {
			Path    string `json:"path"`
			Mode    int    `json:"mode,omitempty" minimum:"0" maximum:"4095" doc:"0 means 0755, 493"`
			Parents bool   `json:"parents,omitempty" doc:"create missing parents; an existing directory is no error"`
		}
	},
	) (*struct{}, error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*struct{}, error) {
			mode, err := api.Mode(i.Body.Mode)
			if err != nil {
				return nil, err
			}
			return done(svc.Mkdir(ctx, i.Body.Path, fumehood.MkdirOptions{Mode: mode, Parents: i.Body.Parents}))
		})
	})
	register(s, op{http.MethodPost, box + "/remove", "remove-file", "Remove a file, a link or an empty directory or, with recursive, a tree", "Files"}, func(ctx context.Context, i *struct {
		In
		Body struct {
			Path      string `json:"path"`
			Recursive bool   `json:"recursive,omitempty"`
		}
	},
	) (*struct{}, error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*struct{}, error) {
			return done(svc.Remove(ctx, i.Body.Path, fumehood.RemoveOptions{Recursive: i.Body.Recursive}))
		})
	})
	register(s, op{http.MethodPost, box + "/rename", "rename-file", "Move a file or directory. It replaces a file, or an empty directory", "Files"}, func(ctx context.Context, i *struct {
		In
		Body struct {
			Path string `json:"path"`
			To   string `json:"to"`
		}
	},
	) (*struct{}, error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*struct{}, error) {
			return done(svc.Rename(ctx, i.Body.Path, i.Body.To))
		})
	})
	register(s, op{http.MethodPost, box + "/chmod", "change-mode", "Set the mode of a file. A link is followed", "Files"}, func(ctx context.Context, i *struct {
		In
		Body struct {
			Path string `json:"path"`
			Mode int    `json:"mode,omitempty" minimum:"0" maximum:"4095"`
		}
	},
	) (*struct{}, error) {
		return with(ctx, s, i.In, func(svc fumehood.Service) (*struct{}, error) {
			mode, err := api.Mode(i.Body.Mode)
			if err != nil {
				return nil, err
			}
			return done(svc.Chmod(ctx, i.Body.Path, mode))
		})
	})
}

// walked is a line of a walk.
type walked struct {
	api.FileInfo
	Error *api.Error `json:"error,omitempty"`
}

func (s *Server) walk(ctx context.Context, i *OnPath) (*huma.StreamResponse, error) {
	_, h, release, err := s.box(ctx, i.At)
	if err != nil {
		return nil, err
	}
	svc, err := h.service(i.Service, i.User)
	if err != nil {
		release()
		return nil, err
	}
	return lines(func(send func(any) error) {
		defer release()
		for entry, err := range svc.Walk(ctx, i.Path) {
			w := walked{FileInfo: api.FileInfoOf(entry.FileInfo)}
			w.Path = entry.Path
			if err != nil {
				e := api.ErrorOf(err)
				w.Error = &e
			}
			if send(w) != nil {
				return
			}
		}
	}), nil
}

// download answers with what open returns: a stream and its size, -1 if that is unknown. A failure in the middle breaks
// the connection, so that the client cannot take a part for the whole.
func (s *Server) download(ctx context.Context, i In, contentType string, open func(fumehood.Service) (io.ReadCloser, int64, error)) (*huma.StreamResponse, error) {
	_, h, release, err := s.box(ctx, i.At)
	if err != nil {
		return nil, err
	}
	svc, err := h.service(i.Service, i.User)
	if err != nil {
		release()
		return nil, err
	}
	content, size, err := open(svc)
	if err != nil {
		release()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer release()
		defer content.Close()
		c.SetHeader("Content-Type", contentType)
		if size >= 0 {
			c.SetHeader("Content-Length", strconv.FormatInt(size, 10))
		}
		n, err := io.Copy(c.BodyWriter(), content)
		if err != nil || size >= 0 && n != size {
			panic(http.ErrAbortHandler) //nolint:forbidigo // as package net/http wants it
		}
	}}, nil
}

func (s *Server) readFile(ctx context.Context, i *struct {
	OnPath
	Offset int64 `query:"offset" minimum:"0" doc:"bytes to skip"`
	Length int64 `query:"length" minimum:"-1" default:"-1" doc:"maximum number of bytes; -1 means all"`
},
) (*huma.StreamResponse, error) {
	return s.download(ctx, i.In, typeBytes, func(svc fumehood.Service) (io.ReadCloser, int64, error) {
		if i.Offset == 0 && i.Length < 0 {
			content, info, err := svc.Open(ctx, i.Path)
			return content, info.Size, err
		}
		r := &ranged{svc: svc, path: i.Path, at: i.Offset, left: i.Length, read: func(at, n int64) ([]byte, error) { return svc.ReadRange(ctx, i.Path, at, n) }}
		return r, -1, r.fill() // an error of the first part is the answer
	})
}

// ranged reads a range of a file, a part at a time.
type ranged struct {
	svc      fumehood.Service
	path     string
	read     func(at, n int64) ([]byte, error)
	at, left int64 // left is -1 for the rest of the file
	part     []byte
	ended    bool
}

func (r *ranged) fill() error {
	n := int64(rangeSize)
	if r.left >= 0 {
		n = min(n, r.left)
	}
	part, err := r.read(r.at, n)
	if err != nil {
		return err
	}
	r.part, r.at = part, r.at+int64(len(part))
	if r.left >= 0 {
		r.left -= int64(len(part))
	}
	r.ended = int64(len(part)) < n || r.left == 0
	return nil
}

func (r *ranged) Read(p []byte) (int, error) {
	for len(r.part) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.part)
	r.part = r.part[n:]
	return n, nil
}

func (r *ranged) Close() error { return nil }

type writeInput struct {
	OnPath
	Reads
	Mode   int    `query:"mode" minimum:"0" maximum:"511" doc:"permission bits of a new file; 0 means 0644, 420"`
	Owner  string `query:"owner" doc:"owner of the file"`
	Atomic bool   `query:"atomic" doc:"replace the file as a whole, or not at all"`
}

func (s *Server) writeFile(ctx context.Context, i *writeInput) (*struct{}, error) {
	return with(ctx, s, i.In, func(svc fumehood.Service) (*struct{}, error) {
		mode, err := api.Mode(i.Mode)
		if err != nil {
			return nil, err
		}
		opts := fumehood.WriteOptions{Mode: mode, Owner: i.Owner, Atomic: i.Atomic}
		if i.size >= 0 {
			return done(sent(svc.WriteFrom(ctx, i.Path, i.stream, i.size, opts)))
		}
		file, err := os.CreateTemp("", "fumehood-upload-*")
		if err != nil {
			return nil, err
		}
		defer os.Remove(file.Name())
		defer file.Close()
		size, err := io.Copy(file, i.stream)
		if disk := (*os.PathError)(nil); err != nil && !errors.As(err, &disk) {
			return nil, sent(bad("read the content: %w", err))
		}
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return nil, err
		}
		return done(svc.WriteFrom(ctx, i.Path, file, size, opts))
	})
}

// sent makes an error about a body that is too large one of its class.
func sent(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &fumehood.Error{Op: "read request", Class: fumehood.ErrTooLarge, Err: large, Hint: "send less, or start the server with a higher --max-upload"}
	}
	return err
}
