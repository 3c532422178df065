package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// Walk describes a tree, down to depth levels below root; all levels if depth is negative. The guest's entries are
// checked: every path must be below the root, and none may occur twice. Otherwise Walk yields an error and stops.
func (g *Guest) Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		t, _, err := g.file(ctx, wire.File{Op: wire.Walk, Path: []byte(root), Depth: depth})
		if err != nil {
			yield(fumehood.WalkEntry{}, err)
			return
		}
		in := t.incoming()
		defer in.Close()
		lines := bufio.NewReaderSize(in, wire.MaxWalkLine)
		for w := (walk{root: root, depth: depth}); ; {
			var e fumehood.WalkEntry
			var failed error
			line, err := lines.ReadSlice('\n')
			switch {
			case err == nil:
				e, failed, err = w.next(line)
			case errors.Is(err, bufio.ErrBufferFull):
				err = protocolError("a line of more than %d bytes", wire.MaxWalkLine)
			case !errors.Is(err, io.EOF):
			case len(line) > 0:
				err = protocolError("incomplete line")
			case w.last == "":
				err = protocolError("empty walk")
			default:
				return
			}
			if err != nil {
				yield(fumehood.WalkEntry{}, err)
				return
			}
			if !yield(e, failed) {
				return
			}
		}
	}
}

// walk checks the entries of a walk.
type walk struct {
	root  string
	depth int
	last  string // the path of the previous entry; empty before the first
}

// next checks an entry. failed is the error that the guest reports for it, err the error of an invalid entry.
func (w *walk) next(line []byte) (e fumehood.WalkEntry, failed, err error) {
	var entry wire.WalkEntry
	if err := json.Unmarshal(line, &entry); err != nil {
		return e, nil, protocolError("%w", err)
	}
	e.Path = string(entry.Path)
	name := path.Join(w.root, e.Path)
	switch first := w.last == ""; {
	case first && e.Path != ".", !first && !below(e.Path):
		return e, nil, protocolError("walk entry outside the root: %.100q", e.Path)
	case !first && w.last != "." && !before(w.last, e.Path):
		return e, nil, protocolError("walk entries out of order: %.100q, %.100q", w.last, e.Path)
	case w.depth >= 0 && !first && strings.Count(e.Path, "/") >= w.depth:
		return e, nil, protocolError("a walk deeper than %d levels", w.depth)
	case entry.Info == nil && entry.Failed == nil:
		return e, nil, protocolError("empty walk entry")
	case first:
		name = w.root
	}
	w.last = e.Path
	e.FileInfo = fumehood.FileInfo{Name: path.Base(name), UID: -1, GID: -1}
	if entry.Info != nil {
		if e.FileInfo, err = info(entry.Info, name); err != nil {
			return e, nil, err
		}
	}
	if entry.Failed != nil {
		failed = fileFailure(entry.Failed)
	}
	return e, failed, nil
}

// below reports whether p is a clean relative path to something below the root.
func below(p string) bool {
	return p != "." && p != ".." && !strings.HasPrefix(p, "../") && p == path.Clean(p) && !path.IsAbs(p) &&
		!strings.ContainsRune(p, 0)
}

// before reports whether a walk meets a before b. The order is by elements, byte by byte, with a directory before its
// content.
func before(a, b string) bool {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) < 0
}
