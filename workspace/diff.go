package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/archive"
)

// Kind is what happened to an entry.
type Kind string

// The kinds of changes.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed" // the type, the mode, the content or where a link points to
)

// Change is the difference in one entry. Times make none.
type Change struct {
	Path   string `json:"path"`
	Kind   Kind   `json:"kind"`
	Before *Entry `json:"before"` // nil where it was added
	After  *Entry `json:"after"`  // nil where it was removed
	// Hunks is the difference of two texts, as unified hunks with three lines of context. A file that was
	// added or removed has one too.
	Hunks string `json:"hunks,omitempty"`
	// Omitted is why contents that differ have no Hunks: "binary" is what is no UTF-8 or has a NUL byte,
	// "too large" what is over MaxText, or comes after MaxTexts. Empty where nothing is left out.
	Omitted string `json:"omitted,omitempty"`
}

const (
	// MaxText is the largest file, in bytes, whose differences are shown line by line.
	MaxText = 1 << 20
	// MaxTexts is how much text, in bytes, one diff shows differences of.
	MaxTexts = 32 << 20
	// maxLines bounds the lines of one text: the work grows with the square of how many differ.
	maxLines = 50_000
)

// content reports whether the contents of files differ.
func (c Change) content() bool { return c.hash(c.Before) != c.hash(c.After) || c.typeChanged() }

func (Change) hash(e *Entry) string {
	if e == nil {
		return ""
	}
	return e.SHA256
}

func (c Change) typeChanged() bool { return c.Kind == Changed && c.Before.Type != c.After.Type }

// DiffManifests returns how the tree b differs from the tree a, in the order of snapshots. It knows no
// contents, so that no change has hunks.
func DiffManifests(a, b *Manifest) []Change {
	changes := []Change{}
	before, after := a.Entries, b.Entries
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = comparePaths(before[0].Path, after[0].Path)
		}
		switch {
		case order < 0:
			changes = append(changes, Change{Path: before[0].Path, Kind: Removed, Before: &before[0]})
			before = before[1:]
		case order > 0:
			changes = append(changes, Change{Path: after[0].Path, Kind: Added, After: &after[0]})
			after = after[1:]
		default:
			x, y := &before[0], &after[0]
			if x.Type != y.Type || x.Mode != y.Mode || x.SHA256 != y.SHA256 || x.Target != y.Target {
				changes = append(changes, Change{Path: x.Path, Kind: Changed, Before: x, After: y})
			}
			before, after = before[1:], after[1:]
		}
	}
	return changes
}

// Source is a tree that can be read more than once.
type Source struct {
	name string
	scan func(ctx context.Context, visit visitor) error
}

// FromFile is the snapshot in a file. Zero limits are the defaults.
func FromFile(name string, limits Limits) Source {
	return Source{name: name, scan: func(ctx context.Context, visit visitor) error {
		f, err := os.Open(name)
		if err != nil {
			return &fumehood.Error{Class: classOf(err, fumehood.ErrInfrastructure), Err: cause(err)}
		}
		defer f.Close()
		return scan(ctx, f, limits, visit)
	}}
}

// FromDir is a folder as Create would store it, within the limits of opts, however that is compressed.
func FromDir(dir string, opts CreateOptions) Source {
	opts.Compression = None
	none := Limits{Bytes: fumehood.NoLimit, Entries: fumehood.NoLimit} // the folder is held against them
	return Source{name: dir, scan: func(ctx context.Context, visit visitor) error {
		pack := func(w io.Writer) error {
			_, err := create(ctx, w, dir, opts)
			return err
		}
		return archive.Pipe(pack, func(r io.Reader) error { return scan(ctx, r, none, visit) })
	}}
}

// Manifest reads the tree and returns its index.
func (s Source) Manifest(ctx context.Context) (*Manifest, error) {
	m := &Manifest{}
	if err := s.scan(ctx, m.visit); err != nil {
		return nil, failure("read", s.name, fumehood.ErrConfig, err)
	}
	m.sort()
	return m, nil
}

// Diff returns how the tree b differs from the tree a, in the order of snapshots. Each is read twice: for
// the indexes, and then for the texts that differ, at most MaxTexts of them.
func Diff(ctx context.Context, a, b Source) ([]Change, error) {
	before, err := a.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	after, err := b.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	changes := DiffManifests(before, after)
	olds, news := choose(changes)
	if err := a.texts(ctx, olds); err != nil {
		return nil, err
	}
	if err := b.texts(ctx, news); err != nil {
		return nil, err
	}
	for i := range changes {
		compare(&changes[i], olds, news)
	}
	return changes, nil
}

// text is a file's content, to be compared.
type text struct {
	sum  string // what it has to be
	data []byte
}

// choose says which contents are needed, and in changes which are too large.
func choose(changes []Change) (olds, news map[string]*text) {
	olds, news = map[string]*text{}, map[string]*text{}
	left := int64(MaxTexts)
	for i := range changes {
		c := &changes[i]
		if !c.content() {
			continue
		}
		var size, largest int64
		for _, e := range []*Entry{c.Before, c.After} {
			if e != nil {
				size, largest = size+e.Size, max(largest, e.Size)
			}
		}
		if largest > MaxText || size > left {
			c.Omitted = "too large"
			continue
		}
		left -= size
		for _, side := range []struct {
			e     *Entry
			texts map[string]*text
		}{{c.Before, olds}, {c.After, news}} {
			if side.e != nil && side.e.Type == File {
				side.texts[c.Path] = &text{sum: side.e.SHA256}
			}
		}
	}
	return olds, news
}

// texts reads the contents that are wanted.
func (s Source) texts(ctx context.Context, wanted map[string]*text) error {
	if len(wanted) == 0 {
		return nil
	}
	found := 0
	err := s.scan(ctx, func(e Entry, content io.Reader) error {
		t := wanted[e.Path]
		if t == nil || e.Type != File {
			return nil
		}
		var err error
		if t.data, err = io.ReadAll(io.LimitReader(content, MaxText+1)); err != nil {
			return err
		}
		if sum := sha256.Sum256(t.data); hex.EncodeToString(sum[:]) != t.sum {
			return changed(e.Path)
		}
		found++
		return nil
	})
	if err == nil && found < len(wanted) {
		err = &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("files went away while they were compared")}
	}
	if err != nil {
		return failure("read", s.name, fumehood.ErrInfrastructure, err)
	}
	return nil
}

// compare sets the hunks of a change, or why there are none.
func compare(c *Change, olds, news map[string]*text) {
	var before, after []byte
	if t := olds[c.Path]; t != nil {
		before = t.data
	}
	if t := news[c.Path]; t != nil {
		after = t.data
	}
	switch {
	case c.Omitted != "" || !c.content():
		return
	case binary(before) || binary(after):
		c.Omitted = "binary"
		return
	case bytes.Count(before, []byte("\n")) > maxLines || bytes.Count(after, []byte("\n")) > maxLines:
		c.Omitted = "too large"
		return
	}
	old := string(before)
	unified, err := udiff.ToUnified("a", "b", old, udiff.Lines(old, string(after)), udiff.DefaultContextLines)
	if err != nil {
		c.Omitted = "too large" // cannot be: the edits are of these texts
		return
	}
	if at := bytes.Index([]byte(unified), []byte("@@")); at >= 0 { // without the two lines of names
		c.Hunks = unified[at:]
	}
}

func binary(data []byte) bool { return bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) }
