package workspace

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// ladder opens folders of a tree in turn, such as each folder on the way to a deep one. It keeps every folder open that is
// a multiple of rungStep levels deep on the way to the last one. So the time to open the next one does not grow with its
// depth.
type ladder struct {
	root  *os.Root
	rungs []rung // each is in the one before
}

type rung struct {
	path string // from the root of the tree
	*os.Root
}

const rungStep = 32

// open opens a folder: "" is the tree itself. The caller closes it.
func (l *ladder) open(dir string) (*os.Root, error) {
	for n := len(l.rungs); n > 0 && dir != l.rungs[n-1].path && !strings.HasPrefix(dir, l.rungs[n-1].path+"/"); n-- {
		_ = l.rungs[n-1].Close() // nothing was written
		l.rungs = l.rungs[:n-1]
	}
	at, done := l.root, 0 // the open folder, and how much of dir leads there
	if n := len(l.rungs); n > 0 {
		at, done = l.rungs[n-1].Root, len(l.rungs[n-1].path)
	}
	for {
		rest := strings.TrimPrefix(dir[done:], "/")
		end := levels(rest, rungStep)
		if end < 0 {
			return at.OpenRoot(filepath.FromSlash(cmp.Or(rest, ".")))
		}
		next, err := at.OpenRoot(filepath.FromSlash(rest[:end]))
		if err != nil {
			return nil, err
		}
		at, done = next, len(dir)-len(rest)+end
		l.rungs = append(l.rungs, rung{dir[:done], next})
	}
}

// levels returns the length of the first n elements of a path, or -1 if it has no more than n.
func levels(path string, n int) int {
	end := 0
	for range n {
		i := strings.IndexByte(path[end:], '/')
		if i < 0 {
			return -1
		}
		end += i + 1
	}
	return end - 1
}

// close closes the folders that are kept open.
func (l *ladder) close() {
	for _, r := range l.rungs {
		_ = r.Close() // nothing was written
	}
	l.rungs = nil
}
