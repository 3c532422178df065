package archive

import (
	"archive/tar"
	"io/fs"
	"strconv"
	"strings"
)

// SkippedRecord is the PAX record that lists what an archive leaves out. The last entry has it, which is the first one again:
// the tree's root. An archive without it leaves out nothing. Its value is the number of files, and then for each file a NUL
// byte, its kind, a space, and its path relative to the entry. Only the number counts files after maxSkipped bytes. Kinds are
// those of Kind, TooDeep and Changed.
const SkippedRecord = "FUMEHOOD.skipped"

const (
	// maxSkipped bounds the paths in a SkippedRecord in bytes. Readers of archives accept records of 1 MiB.
	maxSkipped = 64 << 10
	// maxSkippedFiles bounds how many files ReadSkipped returns.
	maxSkippedFiles = maxSkipped / len("\x00pipe a")
)

// Further kinds of what an archive leaves out.
const (
	TooDeep = "too-deep" // a directory with too many others above it, or with a path that is too long
	Changed = "changed"  // a file that became shorter while it was packed: it is in the archive, and ends with zeros
)

// Special reports whether a file is a pipe, a socket or a device: its content cannot be copied, and opening it may block or
// have side effects.
func Special(mode fs.FileMode) bool {
	return mode.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0
}

// Skipped collects what an archive leaves out. The zero value is empty.
type Skipped struct {
	files int
	list  strings.Builder
}

// Add adds a file, whose path is relative to the root of the tree.
func (s *Skipped) Add(path, kind string) {
	s.files++
	if s.list.Len()+len(kind)+len(path)+2 <= maxSkipped {
		s.list.WriteString("\x00" + kind + " " + path)
	}
}

// Finish writes the tree's root again, with the list, unless nothing was left out. root is its header.
func (s *Skipped) Finish(tw *tar.Writer, root *tar.Header) error {
	if s.files == 0 {
		return nil
	}
	again := *root
	again.Format = tar.FormatPAX
	again.PAXRecords = map[string]string{SkippedRecord: strconv.Itoa(s.files) + s.list.String()}
	return tw.WriteHeader(&again)
}

// SkippedFile is a file that an archive leaves out.
type SkippedFile struct {
	Path string // relative to the entry with the list
	Kind string
}

// ReadSkipped returns the files that an entry of an untrusted archive lists, and how many there are at least. It returns none
// for an entry without a list, or with an invalid one.
func ReadSkipped(head *tar.Header) (files []SkippedFile, count int) {
	number, list, _ := strings.Cut(head.PAXRecords[SkippedRecord], "\x00")
	count, err := strconv.Atoi(number)
	if err != nil || count <= 0 {
		return nil, 0
	}
	for each := range strings.SplitSeq(list, "\x00") {
		kind, path, ok := strings.Cut(each, " ")
		if ok && len(files) < min(count, maxSkippedFiles) {
			files = append(files, SkippedFile{path, kind})
		}
	}
	return files, count
}
