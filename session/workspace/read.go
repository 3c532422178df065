package workspace

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/fumehood/fumehood"
)

// Read reads a whole snapshot, hashes its files, and returns its index. A stream that is not a snapshot is an
// ErrConfig. So is one with entries that snapshots cannot have: names that lead out of the folder, devices,
// pipes, hard links, and duplicate names.
func Read(ctx context.Context, r io.Reader, limits Limits) (*Manifest, error) {
	m := &Manifest{}
	if err := scan(ctx, r, limits, m.visit); err != nil {
		return nil, failure("read snapshot", "", fumehood.ErrConfig, err)
	}
	m.sort()
	return m, nil
}

// visit adds an entry to the index, with the hash of its content. It is a visitor.
func (m *Manifest) visit(e Entry, content io.Reader) error {
	if e.Type == File {
		sum := sha256.New()
		if _, err := io.Copy(sum, content); err != nil {
			return err
		}
		e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	m.Entries = append(m.Entries, e)
	return nil
}

// visitor receives an entry of a snapshot, and the content if it is a file.
type visitor func(e Entry, content io.Reader) error

// scan checks each entry of a snapshot and calls visit for it, in the stream's order. Folders without an entry
// that have content come at the end.
func scan(ctx context.Context, r io.Reader, limits Limits, visit visitor) error {
	source := &watched{r: r, ctx: ctx}
	d, err := decompress(source)
	if err != nil {
		return source.blame(err)
	}
	defer d.Close()
	limits = limits.WithDefaults()
	stream := &bounded{r: d, left: limits.Stored, limit: limits.Stored}
	c := checker{tally: tally{limits: limits}, seen: map[string]Type{}}
	tr := tar.NewReader(stream)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return source.blame(err)
		}
		e, err := c.entry(h)
		if err != nil {
			return err
		}
		if e.Path == "" {
			continue
		}
		var content io.Reader = tr
		if isSparse(h) {
			content = sparse{tr}
		}
		if err := visit(e, content); err != nil {
			return source.blame(err)
		}
	}
	if stream.ended {
		return wrong("not a snapshot, or truncated")
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // a compressed stream has its checksum at the end
		return source.blame(err)
	}
	for _, p := range c.impliedDirs() {
		if err := visit(Entry{Path: p, Type: Dir, Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	return nil
}

// watched records errors of the stream itself, to distinguish them from errors of its content.
type watched struct {
	r   io.Reader
	ctx context.Context //nolint:containedctx // lives for one call
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		w.err = canceledError(w.ctx)
		return 0, w.err
	}
	n, err := w.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if fumehood.ClassOf(err) == nil {
			err = &fumehood.Error{Class: classOf(err, fumehood.ErrInfrastructure), Err: err}
		}
		w.err = err
	}
	return n, err
}

// blame returns the stream's own error if it had one. Decoders may hide it.
func (w *watched) blame(err error) error {
	switch {
	case w.err != nil:
		return w.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return wrong("not a snapshot, or truncated")
	case fumehood.ClassOf(err) == nil && !isOurs(err):
		return wrong("not a snapshot, or damaged: %w", err)
	}
	return err
}

// isOurs reports whether the error is about a file of this machine, and not about the snapshot.
func isOurs(err error) bool {
	var p *fs.PathError
	var l interface{ Timeout() bool }
	return errors.As(err, &p) || errors.As(err, &l)
}

// checker accepts only entries that a snapshot may have.
type checker struct {
	tally tally
	seen  map[string]Type
}

// impliedDir is the type of a folder that has no entry so far, but contains one.
const impliedDir Type = "implied"

// entry returns the entry of a header. It has no path if the header stands for no entry.
func (c *checker) entry(h *tar.Header) (Entry, error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return Entry{}, nil
	}
	e := Entry{Path: strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/"), ModTime: h.ModTime.UTC()}
	switch h.Typeflag {
	case tar.TypeReg:
		e.Type, e.Size, e.Mode = File, h.Size, Perm(h.FileInfo().Mode().Perm())
	case tar.TypeDir:
		e.Type, e.Mode = Dir, Perm(h.FileInfo().Mode().Perm())
		if e.Path == "" || e.Path == "." {
			return Entry{}, nil // the folder itself
		}
	case tar.TypeSymlink:
		e.Type, e.Mode, e.Target = Link, 0o777, h.Linkname
	default:
		return Entry{}, wrongEntry(h.Name, "not a file, folder or symbolic link")
	}
	if path.Clean(e.Path) != e.Path || e.Path == "." || !filepath.IsLocal(filepath.FromSlash(e.Path)) || strings.ContainsRune(e.Path+e.Target, 0) {
		return Entry{}, wrongEntry(h.Name, "the path leads out of the folder or is not clean")
	}
	if isSparse(h) && h.PAXRecords["GNU.sparse.major"]+"."+h.PAXRecords["GNU.sparse.minor"] != "1.0" || h.Typeflag == tar.TypeReg && strings.HasSuffix(h.Name, "/") {
		return Entry{}, wrongEntry(h.Name, "unsupported storage format")
	}
	if err := c.tally.add(e); err != nil {
		return Entry{}, err
	}
	return e, c.place(e)
}

// isSparse reports whether a file is stored with holes.
func isSparse(h *tar.Header) bool {
	_, is := h.PAXRecords["GNU.sparse.major"]
	return is
}

// place checks that each name has one entry, and that all its parents are folders.
func (c *checker) place(e Entry) error {
	if was, ok := c.seen[e.Path]; ok && (was != impliedDir || e.Type != Dir) {
		return wrongEntry(e.Path, "duplicate entry")
	}
	c.seen[e.Path] = e.Type
	for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
		switch was, ok := c.seen[dir]; {
		case !ok:
			c.seen[dir] = impliedDir
		case was == Dir || was == impliedDir:
			return nil
		default:
			return wrongEntry(e.Path, "its parent %s is not a folder", dir)
		}
	}
	return nil
}

func (c *checker) impliedDirs() []string {
	var all []string
	for p, t := range c.seen {
		if t == impliedDir {
			all = append(all, p)
		}
	}
	return all
}
