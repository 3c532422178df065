package workspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Type is the type of an entry.
type Type string

// The types of entries in a snapshot.
const (
	File Type = "file"
	Dir  Type = "dir"
	Link Type = "link" // symbolic
)

// Perm holds the permission bits of a file or folder. Set-id and sticky bits are never kept. Its text form, also
// in JSON, is octal: "0644".
type Perm uint32

// String returns the text form.
func (p Perm) String() string { return fmt.Sprintf("%04o", uint32(p)) }

// MarshalText returns the text form.
func (p Perm) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the text form.
func (p *Perm) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > uint64(fs.ModePerm) {
		return fmt.Errorf("%q is not a mode such as 0644", text)
	}
	*p = Perm(n)
	return nil
}

// Entry is one file, folder or link of a snapshot.
type Entry struct {
	Path    string    `json:"path"` // relative to the folder, with slashes; in JSON {"base64": "..."} if it is not UTF-8
	Type    Type      `json:"type"`
	Mode    Perm      `json:"mode"` // 0777 for links, which have no mode
	Size    int64     `json:"size"` // bytes; 0 if not a file
	ModTime time.Time `json:"mtime,omitzero"`
	SHA256  string    `json:"sha256,omitempty"` // of a file's content, in hexadecimal
	Target  string    `json:"target,omitempty"` // of a link, as stored; in JSON as Path
}

// Skipped is a file that a snapshot cannot hold and that was left out.
type Skipped struct {
	Path string `json:"path"`
	What string `json:"what"` // "pipe", "socket" or "device"
}

// Manifest is the index of a snapshot.
type Manifest struct {
	// Entries are in the order of snapshots: a folder precedes its content, and names are ordered by their bytes.
	// The folder of the snapshot itself has no entry.
	Entries []Entry `json:"entries"`
	// Skipped is known only when the snapshot is created. A snapshot does not contain it.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Size returns the number of bytes in all files.
func (m *Manifest) Size() int64 {
	var n int64
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}

// Hash returns the SHA-256 of the tree, in hexadecimal: of paths, types, permission bits, contents and link
// targets. Times and the compression do not affect it. The hashed bytes are, for each entry in the order of
// snapshots: its type, its mode (as Perm's text), the content's hash or the link's target (empty for a folder),
// and the path. Each is followed by a NUL byte.
func (m *Manifest) Hash() string {
	h := sha256.New()
	for _, e := range m.Entries {
		_, _ = io.WriteString(h, strings.Join([]string{string(e.Type), e.Mode.String(), e.SHA256 + e.Target, e.Path, ""}, "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sort sorts the entries in the order of snapshots.
func (m *Manifest) sort() {
	slices.SortFunc(m.Entries, func(a, b Entry) int { return comparePaths(a.Path, b.Path) })
}

// comparePaths orders paths element by element, each by its bytes. So a folder's content directly follows the
// folder.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
