package client

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

// Walk describes a tree, no more than depth levels below root where depth is not negative. What the guest
// says of it is taken for a tree's description only as long as it can be one: every path is below the root,
// and none comes twice.
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
				err = broken("a line of more than %d bytes", wire.MaxWalkLine)
			case !errors.Is(err, io.EOF):
			case len(line) > 0:
				err = broken("a line without an end")
			case w.last == "":
				err = broken("a walk that did not begin")
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

// walk checks the entries of one.
type walk struct {
	root  string
	depth int
	last  string // the path of the entry before; empty at the beginning
}

// next checks an entry: failed is what the guest says went wrong with it, err that the guest lies.
func (w *walk) next(line []byte) (e fumehood.WalkEntry, failed, err error) {
	var said wire.WalkEntry
	if err := json.Unmarshal(line, &said); err != nil {
		return e, nil, broken("%w", err)
	}
	e.Path = string(said.Path)
	name := path.Join(w.root, e.Path)
	switch first := w.last == ""; {
	case first && e.Path != ".", !first && !below(e.Path):
		return e, nil, broken("a walk to %.100q", e.Path)
	case !first && w.last != "." && !before(w.last, e.Path):
		return e, nil, broken("a walk from %.100q to %.100q", w.last, e.Path)
	case w.depth >= 0 && !first && strings.Count(e.Path, "/") >= w.depth:
		return e, nil, broken("a walk deeper than %d levels", w.depth)
	case said.Info == nil && said.Failed == nil:
		return e, nil, broken("an entry of nothing")
	case first:
		name = w.root
	}
	w.last = e.Path
	e.FileInfo = fumehood.FileInfo{Name: path.Base(name), UID: -1, GID: -1}
	if said.Info != nil {
		if e.FileInfo, err = info(said.Info, name); err != nil {
			return e, nil, err
		}
	}
	if said.Failed != nil {
		failed = fileFailure(said.Failed)
	}
	return e, failed, nil
}

// below reports whether p is a clean relative path that leads neither up nor nowhere.
func below(p string) bool {
	return p != "." && p != ".." && !strings.HasPrefix(p, "../") && p == path.Clean(p) && !path.IsAbs(p) &&
		!strings.ContainsRune(p, 0)
}

// before reports whether a walk meets a before b: by their elements, byte for byte, a directory before
// what is in it.
func before(a, b string) bool {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) < 0
}
