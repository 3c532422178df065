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

// Read returns the index of a snapshot: it reads all of it, and hashes the files. What is no snapshot, or
// holds what a snapshot has not (names that lead out of the folder, devices, pipes, hard links, two entries
// of one name), is an ErrConfig.
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

// visitor gets an entry of a snapshot, and the content of a file.
type visitor func(e Entry, content io.Reader) error

// scan calls visit for each entry of a snapshot, checked, in the stream's order. Folders that have no
// entry but something in them come at the end.
func scan(ctx context.Context, r io.Reader, limits Limits, visit visitor) error {
	source := &watched{r: r, ctx: ctx}
	d, err := decompress(source)
	if err != nil {
		return source.blame(err)
	}
	defer d.Close()
	limits = limits.withDefaults()
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
		return wrong("this is no snapshot, or one that is cut short")
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // what is compressed has its checksum at the end
		return source.blame(err)
	}
	for _, p := range c.implied() {
		if err := visit(Entry{Path: p, Type: Dir, Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	return nil
}

// watched tells the errors of the stream itself from those of what is in it.
type watched struct {
	r   io.Reader
	ctx context.Context //nolint:containedctx // one call's
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		w.err = cancelled(w.ctx)
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

// blame returns the stream's error, where it had one: decoders may hide it.
func (w *watched) blame(err error) error {
	switch {
	case w.err != nil:
		return w.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return wrong("this is no snapshot, or one that is cut short")
	case fumehood.ClassOf(err) == nil && !isOurs(err):
		return wrong("this is no snapshot, or a damaged one: %w", err)
	}
	return err
}

// isOurs reports whether the error is about a file of this machine, not about what is read.
func isOurs(err error) bool {
	var p *fs.PathError
	var l interface{ Timeout() bool }
	return errors.As(err, &p) || errors.As(err, &l)
}

// checker lets through what a snapshot may have.
type checker struct {
	tally tally
	seen  map[string]Type
}

// impliedDir is a folder that has had no entry yet, but something in it.
const impliedDir Type = "implied"

// entry returns what a header stands for; without a path where it stands for nothing.
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
		return Entry{}, wrongEntry(h.Name, "it is neither a file, a folder nor a symbolic link, and is not taken")
	}
	if path.Clean(e.Path) != e.Path || e.Path == "." || !filepath.IsLocal(filepath.FromSlash(e.Path)) || strings.ContainsRune(e.Path+e.Target, 0) {
		return Entry{}, wrongEntry(h.Name, "the entry leads elsewhere, and is not taken")
	}
	if isSparse(h) && h.PAXRecords["GNU.sparse.major"]+"."+h.PAXRecords["GNU.sparse.minor"] != "1.0" || h.Typeflag == tar.TypeReg && strings.HasSuffix(h.Name, "/") {
		return Entry{}, wrongEntry(h.Name, "it is stored in a way that snapshots have not")
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

// place makes sure that there is one entry of a name, and that all above it are folders.
func (c *checker) place(e Entry) error {
	if was, ok := c.seen[e.Path]; ok && (was != impliedDir || e.Type != Dir) {
		return wrongEntry(e.Path, "there are two entries of this name")
	}
	c.seen[e.Path] = e.Type
	for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
		switch was, ok := c.seen[dir]; {
		case !ok:
			c.seen[dir] = impliedDir
		case was == Dir || was == impliedDir:
			return nil
		default:
			return wrongEntry(e.Path, "%s, which it is in, is no folder", dir)
		}
	}
	return nil
}

func (c *checker) implied() []string {
	var all []string
	for p, t := range c.seen {
		if t == impliedDir {
			all = append(all, p)
		}
	}
	return all
}
