package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/fumehood/fumehood"
)

// Limits bound a snapshot, both when it is created and when it is read. In each field 0 means the default and
// fumehood.NoLimit no limit. Exceeding a limit is an ErrLimit with a *LimitError. A snapshot that was created
// within limits can be read within the same limits.
type Limits struct {
	// Bytes bounds the total size of all files, including the holes of sparse files. The default is 10 GiB.
	Bytes int64
	// Stored bounds the size of the snapshot before compression, in bytes. It counts headers and files, without
	// holes that are stored as holes. The default is Bytes.
	Stored int64
	// Entries bounds the number of files, folders and links. The default is a million.
	Entries int
}

// WithDefaults returns the limits with the defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	l.Bytes = cmp.Or(l.Bytes, 10<<30)
	return Limits{l.Bytes, cmp.Or(l.Stored, l.Bytes), cmp.Or(l.Entries, 1_000_000)}
}

// maxNames bounds the memory for the names of a snapshot's entries: the total length of all paths and link
// targets.
const maxNames = 256 << 20

// LimitError reports which limit a snapshot exceeds.
type LimitError struct {
	Limit string // the field of Limits: "Bytes", "Stored" or "Entries"; or "Names" for all names together, 256 MiB
	Max   int64  // bytes, or entries
	Path  string // the entry that exceeds it; empty if no entry does
	Size  int64  // size of the entry in bytes, including holes
}

// Error returns the limit and the entry as text.
func (e *LimitError) Error() string {
	text := fmt.Sprintf("the snapshot has more than %d %s", e.Max, map[string]string{
		"Bytes": "bytes in files", "Stored": "bytes before compression", "Entries": "entries", "Names": "bytes of names",
	}[e.Limit])
	if e.Path != "" {
		text += fmt.Sprintf(", at %s of %d bytes", strconv.Quote(e.Path), e.Size)
	}
	return text
}

// hints describe how to raise a limit.
var hints = map[string]string{
	"Bytes":   "leave files out, or raise the limit (--max-size)",
	"Stored":  "leave files out, or raise the limit (--max-stored)",
	"Entries": "leave files out, or raise the limit (--max-entries)",
}

// tooLarge returns the error of an entry that exceeds a limit. The zero Entry means no entry.
func tooLarge(limit string, most int64, e Entry) error {
	return &fumehood.Error{Class: fumehood.ErrLimit, Err: &LimitError{limit, most, e.Path, e.Size}, Hint: hints[limit]}
}

// tally checks entries against the limits.
type tally struct {
	limits  Limits // with defaults
	entries int
	bytes   int64
	names   int64
}

func (t *tally) add(e Entry) error {
	if len(e.Path) > maxPath || len(e.Target) > maxPath {
		return tooDeep(e.Path)
	}
	t.entries++
	t.bytes += e.Size
	t.names += int64(len(e.Path) + len(e.Target))
	switch l := t.limits; {
	case l.Entries != fumehood.NoLimit && t.entries > l.Entries:
		return tooLarge("Entries", int64(l.Entries), e)
	case l.Bytes != fumehood.NoLimit && (t.bytes > l.Bytes || t.bytes < 0):
		return tooLarge("Bytes", l.Bytes, e)
	case t.names > maxNames:
		return tooLarge("Names", maxNames, e)
	}
	return nil
}

// bounded reads at most a number of bytes, and records whether everything has been read.
type bounded struct {
	r           io.Reader
	left, limit int64
	ended       bool
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.limit != fumehood.NoLimit {
		p = p[:min(int64(len(p))-1, b.left)+1] // one extra byte shows whether there is more
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if b.limit != fumehood.NoLimit && b.left < 0 {
		return 0, tooLarge("Stored", b.limit, Entry{})
	}
	b.ended = b.ended || n == 0 && errors.Is(err, io.EOF)
	return n, err
}

// counted counts the bytes that are written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
