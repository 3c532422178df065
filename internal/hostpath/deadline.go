package hostpath

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// readTime limits each access to a path. A file system that hangs (NFS, FUSE) may never answer.
const readTime = 10 * time.Second

// InTime calls f, which accesses path, and waits up to 10 s for it. After that it returns an os.ErrDeadlineExceeded
// that names the path. Nothing can interrupt f, so it runs on until the file system answers: it must not write to
// data that the caller uses.
func InTime[T any](path string, f func() (T, error)) (T, error) { return inTime(readTime, path, f) }

func inTime[T any](limit time.Duration, path string, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := f()
		answers <- answer{value, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
		var none T
		return none, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("no answer from its file system within %v: %w", limit, os.ErrDeadlineExceeded)}
	}
}

// answers reads the first byte of a file, with InTime's limit.
func answers(path string) error {
	_, err := InTime(path, func() (int, error) {
		f, err := archive.OpenRegular(path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		return f.Read(make([]byte, 1))
	})
	return err
}

// Stat is os.Stat with InTime's limit.
func Stat(path string) (os.FileInfo, error) {
	return InTime(path, func() (os.FileInfo, error) { return os.Stat(path) })
}
