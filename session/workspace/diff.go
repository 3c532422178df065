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
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Kind is the kind of a change.
type Kind string

// The kinds of changes.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed" // type, mode, content or link target
)

// Change is a difference in one entry. A difference in times only is not a change.
type Change struct {
	Path   string `json:"path"`
	Kind   Kind   `json:"kind"`
	Before *Entry `json:"before"` // nil if added
	After  *Entry `json:"after"`  // nil if removed
	// Hunks is the difference of two texts as unified hunks with three lines of context. Added and removed files
	// have hunks too.
	Hunks string `json:"hunks,omitempty"`
	// Omitted is the reason why contents that differ have no Hunks. "binary" is a file that is not UTF-8 or has a
	// NUL byte. "too large" is a file larger than MaxText or with more than 50,000 lines, or one that no longer
	// fits into MaxTexts. It is empty if nothing is left out.
	Omitted string `json:"omitted,omitempty"`
}

const (
	// MaxText is the size in bytes of the largest file whose differences are shown line by line.
	MaxText = 1 << 20
	// MaxTexts bounds the text, in bytes, whose differences one diff shows.
	MaxTexts = 32 << 20
	// maxLines bounds the lines of one text. The time for a comparison grows with the square of the number of
	// differing lines.
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

// DiffManifests returns the differences from tree a to tree b, in the order of snapshots. Manifests have no
// contents, so the changes have no hunks.
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

// FromFile returns the snapshot in a file as a Source. Zero limits mean the defaults.
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

// FromDir returns a folder as a Source, with the content that Create would store within the limits of opts. The
// compression in opts has no effect.
func FromDir(dir string, opts CreateOptions) Source {
	opts.Compression = None
	none := Limits{Bytes: fumehood.NoLimit, Entries: fumehood.NoLimit} // create checks the limits
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

// Diff returns the differences from tree a to tree b, in the order of snapshots. It reads each tree twice: once
// for the index, and once for the texts that differ, at most MaxTexts bytes of them.
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

// text is the content of a file to compare.
type text struct {
	sum  string // the expected hash
	data []byte
}

// choose selects the contents to read, and marks in changes those that are too large.
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

// texts reads the wanted contents.
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
			return changedError(e.Path)
		}
		found++
		return nil
	})
	if err == nil && found < len(wanted) {
		err = &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("files disappeared during the comparison")}
	}
	if err != nil {
		return failure("read", s.name, fumehood.ErrInfrastructure, err)
	}
	return nil
}

// compare sets the hunks of a change, or the reason why it has none.
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
		c.Omitted = "too large" // cannot happen: the edits are of these texts
		return
	}
	if at := bytes.Index([]byte(unified), []byte("@@")); at >= 0 { // without the two lines with the names
		c.Hunks = unified[at:]
	}
}

func binary(data []byte) bool { return bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) }
