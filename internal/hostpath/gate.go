package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Gate decides which paths a file may name: those in its folder, and those that the user allows. The zero value
// rejects all paths.
type Gate struct {
	whose string   // "the project's folder", for messages
	dirs  []string // without links
}

// NewGate returns the gate of a folder and of additional files and folders. whose describes the folder in messages. If
// dir is empty, there is no folder.
func NewGate(whose, dir string, allowed ...string) (Gate, error) {
	g := Gate{whose: whose}
	if dir != "" {
		allowed = append([]string{dir}, allowed...)
	}
	for _, path := range allowed {
		real, err := InTime(path, func() (string, error) {
			abs, err := filepath.Abs(path)
			return Real(abs), err
		})
		if err != nil {
			return Gate{}, err
		}
		g.dirs = append(g.dirs, real)
	}
	return g, nil
}

// Inside reports whether a path is in one of the gate's folders, or is one of its files, however a ".." after a link is
// understood. A path of which an element may not be looked at is not inside, because it could be a link.
func (g Gate) Inside(path string) bool {
	inside, err := g.inside(path)
	return err == nil && inside
}

func (g Gate) inside(path string) (bool, error) {
	all, err := InTime(path, func() ([]string, error) { return ends(path) })
	for _, end := range all {
		if !slices.ContainsFunc(g.dirs, func(dir string) bool { return within(dir, end) }) {
			return false, err
		}
	}
	return err == nil, err
}

// Check returns an error for a path that the gate rejects.
func (g Gate) Check(path string) error {
	switch inside, err := g.inside(path); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may lead out of %s: %w", path, g.whose, err)
	case inside:
		return nil
	}
	return &outsideError{path, g.whose}
}

// outsideError is the error of a path outside of a gate's folders.
type outsideError struct{ path, whose string }

func (e *outsideError) Error() string {
	return fmt.Sprintf("%s is outside %s, and may not be read: --allow-read %s allows it", e.path, e.whose, e.path)
}

// Outside returns the path.
func (e *outsideError) Outside() string { return e.path }

// File returns an error if a path may not be read as a file: the gate rejects it, it is not a regular file, or it has
// more than most bytes. A path that does not exist passes.
func (g Gate) File(path string, most int64) error {
	if err := g.Check(path); err != nil {
		return err
	}
	info, err := Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case info.Size() > most:
		return fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	if err := answers(path); errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// Read reads a file like ReadFile, if the gate accepts its path.
func (g Gate) Read(path string, most int64) ([]byte, error) {
	if err := g.Check(path); err != nil {
		return nil, err
	}
	return ReadFile(path, most)
}

// ReadFile reads a regular file of at most most bytes. It does not block on a pipe or a device, and waits up to 10 s
// for a file.
func ReadFile(path string, most int64) ([]byte, error) {
	return InTime(path, func() ([]byte, error) { return archive.ReadFile(path, most) })
}

// timeZone are files of /etc that contain only the time zone.
var timeZone = []string{"/etc/localtime", "/etc/timezone"}

// Mount returns why a file may not mount a path in a sandbox, or "" if it may. Writable mounts are shared by all
// sandboxes of the file, and its folder often contains what the host executes later: scripts, Git hooks, the file
// itself.
func (g Gate) Mount(path string, writable bool) (why string) {
	if why := Unsafe(path, writable); why != "" {
		return why
	}
	switch {
	case writable:
		return "it is a path of the host and writable; read-only, with :ro, it is safe below " + g.whose
	case slices.Contains(timeZone, filepath.Clean(path)), g.Inside(path):
		return ""
	}
	return "it is a path of the host outside of " + g.whose
}
