package archive

import (
	"bytes"
	"os"
)

// SparseWriter writes a new file from its beginning and leaves holes for pages that are all zero. A hole at the end
// needs a Truncate to the number of bytes written.
type SparseWriter struct {
	File *os.File
	at   int64
}

// page is the size in bytes, and the alignment, of the smallest hole.
const page = 4096

// zeros is the content of a hole.
var zeros [page]byte

// Write writes p, except for its pages of zeros.
func (w *SparseWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n, zero := w.leadingPages(p[done:])
		if !zero {
			if _, err := w.File.WriteAt(p[done:done+n], w.at); err != nil {
				return done, err
			}
		}
		done += n
		w.at += int64(n)
	}
	return len(p), nil
}

// leadingPages returns the number of leading bytes in pages that are all zero, or in pages that are not.
func (w *SparseWriter) leadingPages(p []byte) (n int, zero bool) {
	for n < len(p) {
		next := min(len(p)-n, page-int((w.at+int64(n))%page))
		is := bytes.Equal(p[n:n+next], zeros[:next])
		if n > 0 && is != zero {
			return n, zero
		}
		zero, n = is, n+next
	}
	return n, zero
}
