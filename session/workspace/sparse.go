package workspace

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	// minHoles is the size of the holes, in bytes, that makes a file sparse. Files of at most bufferSize are
	// never sparse.
	minHoles = 1 << 20
	// maxExtents is the number of parts of a sparse file that are stored separately. The rest is stored as one
	// part.
	maxExtents = 10_000
	// block is the unit of tar streams.
	block = 512
	// maxOctal is the largest number that fits in the size and time of a header.
	maxOctal = 1<<33 - 1
)

// extent is a part of a file.
type extent struct{ at, size int64 }

// extents returns the parts of an open file that are not holes. It returns one part if the file has few holes or
// none.
func extents(f *os.File, info fs.FileInfo) []extent {
	all := []extent{{0, info.Size()}}
	if info.Size() <= bufferSize || storedSize(info) > info.Size()-minHoles {
		return all
	}
	parts, err := seekData(f, info.Size())
	if err != nil || sizeOf(parts) > info.Size()-minHoles {
		return all
	}
	return parts
}

func sizeOf(parts []extent) (n int64) {
	for _, p := range parts {
		n += p.size
	}
	return n
}

// sparseHead returns the bytes before the data of a sparse file in a tar stream: headers and map of GNU's sparse
// format 1.0. Package archive/tar reads that format, but does not write it.
func sparseHead(e *Entry, parts []extent) []byte {
	if n := len(parts); n == 0 || parts[n-1].at+parts[n-1].size < e.Size {
		parts = append(parts[:n:n], extent{e.Size, 0}) // the hole at the end, as GNU tar writes it
	}
	var m bytes.Buffer
	fmt.Fprintln(&m, len(parts))
	for _, p := range parts {
		fmt.Fprintf(&m, "%d\n%d\n", p.at, p.size)
	}
	m.Write(padding(int64(m.Len())))
	size, at := int64(m.Len())+sizeOf(parts), e.ModTime.Unix()
	records := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.name", e.Path) +
		record("GNU.sparse.realsize", fmt.Sprint(e.Size))
	if size > maxOctal {
		records += record("size", fmt.Sprint(size))
	}
	if at < 0 || at > maxOctal {
		records += record("mtime", fmt.Sprint(at))
	}
	head := rawHeader("PaxHeaders.0/file", 'x', 0o644, int64(len(records)), 0)
	head = append(head, records...)
	head = append(head, padding(int64(len(records)))...)
	head = append(head, rawHeader("GNUSparseFile.0/file", '0', int64(e.Mode), size, at)...)
	return append(head, m.Bytes()...)
}

// record returns a record of an extended header. Its length in decimal digits includes itself.
func record(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	for n := len(rest); ; n++ {
		if text := fmt.Sprint(n) + rest; len(text) == n {
			return text
		}
	}
}

// rawHeader returns a header in the ustar format. A number that does not fit is written as 0: it is in the
// extended header.
func rawHeader(name string, kind byte, mode, size, at int64) []byte {
	h := make([]byte, block)
	octal := func(from, width int, n int64) {
		if n < 0 || n > maxOctal {
			n = 0
		}
		copy(h[from:], fmt.Sprintf("%0*o", width, n))
	}
	copy(h, name)
	octal(100, 7, mode)
	octal(108, 7, 0) // uid
	octal(116, 7, 0) // gid
	octal(124, 11, size)
	octal(136, 11, at)
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	octal(329, 7, 0) // devices
	octal(337, 7, 0)
	copy(h[148:], strings.Repeat(" ", 8))
	sum := int64(0)
	for _, b := range h {
		sum += int64(b)
	}
	octal(148, 6, sum)
	h[154] = 0
	return h
}

// padding returns the bytes that fill the last block of n bytes.
func padding(n int64) []byte { return make([]byte, (block-n%block)%block) }

// noBytes is the content of a hole.
var noBytes [bufferSize]byte

// sparse is the content of an entry that is stored with holes.
type sparse struct{ io.Reader }
