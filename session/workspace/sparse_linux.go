package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// The lseek operations that find data and holes.
const (
	seekTo   = 3 // SEEK_DATA
	seekHole = 4 // SEEK_HOLE
)

// storedSize returns the number of bytes that a file uses on disk, as far as that is known.
func storedSize(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// seekData returns the parts of the first size bytes of a file that are not holes.
func seekData(f *os.File, size int64) (parts []extent, err error) {
	parts = []extent{}
	for at := int64(0); at < size; {
		from, err := f.Seek(at, seekTo)
		if errors.Is(err, syscall.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return nil, err
		}
		if from >= size {
			break
		}
		if len(parts) == maxExtents {
			parts = append(parts, extent{from, size - from})
			break
		}
		to, err := f.Seek(from, seekHole)
		if err != nil {
			return nil, err
		}
		if to <= from {
			return nil, errors.New("it changes")
		}
		to = min(to, size)
		parts, at = append(parts, extent{from, to - from}), to
	}
	_, err = f.Seek(0, io.SeekStart)
	return parts, err
}
