package hostpath

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fumehood/fumehood/internal/archive"
)

// readTime bounds each look at a path. A file system that has hung (NFS, FUSE) may never answer.
const readTime = 10 * time.Second

// InTime calls f, which looks at a path, and waits 10 s for it. Then it returns an os.ErrDeadlineExceeded that names the path.
// f runs on until the file system answers, for nothing can end it: it must not write to what the caller uses.
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

// answers reads the first byte of a file, in time.
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

// Stat is os.Stat, in time.
func Stat(path string) (os.FileInfo, error) {
	return InTime(path, func() (os.FileInfo, error) { return os.Stat(path) })
}
