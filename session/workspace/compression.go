package workspace

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	unxz "github.com/xi2/xz"

	"github.com/fumehood/fumehood"
)

// Compression is a compression format of a snapshot or an input file, named by its usual file extension.
type Compression string

// The compression formats. When reading, the format is detected from the first bytes.
const (
	None  Compression = "none"
	Gzip  Compression = "gz"
	XZ    Compression = "xz"
	Zstd  Compression = "zst"
	Bzip2 Compression = "bz2" // can be read, but not written
)

// magic holds the first bytes of compressed streams.
var magic = map[Compression][]byte{
	Gzip: {0x1f, 0x8b}, Bzip2: []byte("BZh"), XZ: {0xfd, '7', 'z', 'X', 'Z', 0}, Zstd: {0x28, 0xb5, 0x2f, 0xfd},
}

// The memory that a compressed stream may require: as much as xz -9 uses, and as the zstd command allows.
const (
	xzDictionary = 64 << 20
	zstdWindow   = 128 << 20
)

// zstdWritten is the window size that we write: that of zstd -3. The library's default is four times as large. It
// makes snapshots of source code no smaller, and needs 20 MiB more to write and 12 MiB more to read.
const zstdWritten = 2 << 20

// compress returns a writer whose Close ends the compressed stream, but does not close w. The same input gives
// the same bytes, independent of the number of processors.
func compress(w io.Writer, c Compression) (io.WriteCloser, error) {
	switch c {
	case None:
		return plain{w}, nil
	case Gzip:
		return gzip.NewWriterLevel(w, gzip.DefaultCompression)
	case XZ:
		return xz.NewWriter(w)
	case Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(zstdWritten))
	case Bzip2:
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("bz2 can only be read"), Hint: "use gz, xz or zst"}
	}
	return nil, wrong("unknown compression %q: use gz, xz, zst or none", c)
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// decompress detects the compression of r and returns the decompressed stream. Its Close frees memory and leaves
// r open.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	first, err := in.Peek(8)
	if err != nil && err != io.EOF { //nolint:errorlint // Peek returns the reader's own error, and EOF bare
		return nil, err
	}
	for c, m := range magic {
		if !bytes.HasPrefix(first, m) {
			continue
		}
		var out io.Reader
		switch c {
		case Gzip:
			out, err = gzip.NewReader(in)
		case Bzip2:
			out, err = bzip2.NewReader(in), nil
		case XZ:
			out, err = unxz.NewReader(in, xzDictionary) // the other library has no memory limit
		case Zstd:
			var d *zstd.Decoder
			if d, err = zstd.NewReader(in, zstd.WithDecoderMaxWindow(zstdWindow)); err == nil {
				return decoder{d, d.Close}, nil
			}
		case None: // it begins with nothing of its own
		}
		return decoder{out, func() {}}, memoryError(err)
	}
	return io.NopCloser(in), nil
}

// decoder is a decompressed stream.
type decoder struct {
	r    io.Reader
	free func()
}

func (d decoder) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	return n, memoryError(err)
}

func (d decoder) Close() error {
	d.free()
	return nil
}

// memoryError sets the class of the error of a stream that requires too much memory.
func memoryError(err error) error {
	limit := 0
	switch {
	case errors.Is(err, unxz.ErrMemlimit):
		limit = xzDictionary
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		limit = zstdWindow
	default:
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("decompression needs more than %d bytes of memory", limit)}
}
