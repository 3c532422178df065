package local

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"syscall"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/guest/files"
)

// Upload extracts an archive. Its entries cannot leave dir, neither through ".." nor through a link.
func (hostFiles) Upload(ctx context.Context, dir string, tar io.Reader) error {
	if err := directory(dir); err != nil {
		return err
	}
	src := &source{ctx: ctx, r: tar}
	err := archive.UnpackInto(src, dir)
	if err == nil {
		_, err = io.Copy(io.Discard, src) // so that the writer does not block
	}
	if src.err != nil {
		return src.err
	}
	return archiveError(err)
}

// archiveError assigns a class to the error of an extraction. An error that is not the disk's is the archive's fault:
// it is truncated, or leads out of the directory, for example.
func archiveError(err error) error {
	if err == nil {
		return nil
	}
	class := fumehood.ClassOf(fileError(err))
	if class == nil {
		class = fumehood.ErrConfig
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			class = fumehood.ErrInfrastructure
		}
	}
	return &fumehood.Error{Class: class, Err: err}
}

// Download archives a file or a tree while the caller reads. It fails when ctx ends.
func (hostFiles) Download(ctx context.Context, file string) (io.ReadCloser, error) {
	top, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, fileError(err)
	}
	r, w := io.Pipe()
	d := download{r, make(chan struct{})}
	go func() {
		defer close(d.done)
		defer context.AfterFunc(ctx, func() {
			w.CloseWithError(&fumehood.Error{Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)})
		})()
		w.CloseWithError(fileError(files.Pack(w, top, filepath.Base(file))))
	}()
	return d, nil
}

// download is an archive that is being written. Close stops the writer.
type download struct {
	*io.PipeReader
	done chan struct{}
}

func (d download) Close() error {
	err := d.PipeReader.Close()
	<-d.done
	return err
}
