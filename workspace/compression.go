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

// Compression is how a snapshot or an input file is compressed: the usual end of its name.
type Compression string

// The ways of compression. What is read tells its own by its first bytes.
const (
	None  Compression = "none"
	Gzip  Compression = "gz"
	XZ    Compression = "xz"
	Zstd  Compression = "zst"
	Bzip2 Compression = "bz2" // is read, and never written
)

// magic is how a compressed stream begins.
var magic = map[Compression][]byte{
	Gzip: {0x1f, 0x8b}, Bzip2: []byte("BZh"), XZ: {0xfd, '7', 'z', 'X', 'Z', 0}, Zstd: {0x28, 0xb5, 0x2f, 0xfd},
}

// What a compressed stream may ask for in memory: as much as xz -9 does, and as the zstd command allows.
const (
	xzDictionary = 64 << 20
	zstdWindow   = 128 << 20
)

// zstdWritten is the window that we write: that of zstd -3. The library's own, four times as large, makes
// snapshots of sources no smaller, and takes 20 MiB more to make and 12 MiB more to read.
const zstdWritten = 2 << 20

// compress returns a writer whose Close ends the compressed stream, not w. The same input gives the same
// bytes, whatever the number of processors.
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
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("bz2 can be read only"), Hint: "use gz, xz or zst"}
	}
	return nil, wrong("there is no compression %q, only gz, xz, zst and none", c)
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// decompress detects how r is compressed and returns what is in it. Its Close frees memory and leaves r
// open.
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
			out, err = unxz.NewReader(in, xzDictionary) // the other library takes what the stream asks for
		case Zstd:
			var d *zstd.Decoder
			if d, err = zstd.NewReader(in, zstd.WithDecoderMaxWindow(zstdWindow)); err == nil {
				return decoder{d, d.Close}, nil
			}
		}
		return decoder{out, func() {}}, asked(err)
	}
	return io.NopCloser(in), nil
}

// decoder is what a stream holds, decompressed.
type decoder struct {
	r    io.Reader
	free func()
}

func (d decoder) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	return n, asked(err)
}

func (d decoder) Close() error {
	d.free()
	return nil
}

// asked gives the error of a stream that asks for too much memory its class.
func asked(err error) error {
	limit := 0
	switch {
	case errors.Is(err, unxz.ErrMemlimit):
		limit = xzDictionary
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		limit = zstdWindow
	default:
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("decompressing it takes more than %d bytes of memory", limit)}
}
