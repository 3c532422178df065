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

// Type is what an entry is.
type Type string

// The types that a snapshot has.
const (
	File Type = "file"
	Dir  Type = "dir"
	Link Type = "link" // symbolic
)

// Perm is the permission bits of a file or folder. Set-id and sticky bits are never kept. Its text, in JSON
// too, is octal: "0644".
type Perm uint32

// String gives the text.
func (p Perm) String() string { return fmt.Sprintf("%04o", uint32(p)) }

// MarshalText gives the text.
func (p Perm) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text.
func (p *Perm) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > uint64(fs.ModePerm) {
		return fmt.Errorf("%q is no mode such as 0644", text)
	}
	*p = Perm(n)
	return nil
}

// Entry is one file, folder or link of a snapshot.
type Entry struct {
	Path    string    `json:"path"` // relative to the folder, with slashes; in JSON, U+FFFD for what is not UTF-8
	Type    Type      `json:"type"`
	Mode    Perm      `json:"mode"` // 0777 for links, which have none
	Size    int64     `json:"size"` // bytes; 0 for what is no file
	ModTime time.Time `json:"mtime,omitzero"`
	SHA256  string    `json:"sha256,omitempty"` // of a file's content, in hexadecimal digits
	Target  string    `json:"target,omitempty"` // of a link, as it is stored
}

// Skipped is something that a snapshot cannot carry, and left out.
type Skipped struct {
	Path string `json:"path"`
	What string `json:"what"` // "pipe", "socket" or "device"
}

// Manifest is the index of a snapshot.
type Manifest struct {
	// Entries are in the order of snapshots: a folder before what is in it, names by their bytes. The folder
	// that the snapshot is of has no entry.
	Entries []Entry `json:"entries"`
	// Skipped is known where the snapshot was made. A snapshot that is read does not tell.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Size is the number of bytes in all files.
func (m *Manifest) Size() int64 {
	var n int64
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}

// Hash is the SHA-256, in hexadecimal digits, of all that a tree is made of: paths, types, permission bits,
// contents and where links point to. Times and the way of compression make no difference to it. It is taken
// over, for each entry in the order of snapshots, its type, mode (as Perm's text), content's hash or link's
// target (empty for a folder) and path, each followed by a NUL byte.
func (m *Manifest) Hash() string {
	h := sha256.New()
	for _, e := range m.Entries {
		_, _ = io.WriteString(h, strings.Join([]string{string(e.Type), e.Mode.String(), e.SHA256 + e.Target, e.Path, ""}, "\x00")) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sort puts the entries in the order of snapshots.
func (m *Manifest) sort() {
	slices.SortFunc(m.Entries, func(a, b Entry) int { return comparePaths(a.Path, b.Path) })
}

// comparePaths orders paths by their elements, each by its bytes: what is in a folder follows it at once.
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
