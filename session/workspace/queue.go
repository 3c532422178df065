package workspace

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
)

const (
	// ahead is the number of entries that may be in progress. With one buffer each they bound the memory use.
	ahead = 32
	// helpers is the number of small files that are read and hashed, or written, at once. Another goroutine
	// handles the stream.
	helpers = 3
)

// buffers holds buffers for small files, as *[bufferSize]byte.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// queue writes entries to a tar stream in the order of the put calls. Files of at most bufferSize are read and
// hashed ahead; larger ones when their turn comes.
type queue struct {
	ctx     context.Context //nolint:containedctx // lives for one call
	raw     *counted        // the stream under tar
	tar     *tar.Writer
	most    int64 // limit of bytes to raw; fumehood.NoLimit for no limit
	ordered chan *item
	stop    chan struct{} // closed when writing has failed
	err     error         // of the goroutine that calls put; read after ordered is closed
	readers errgroup.Group
}

// item is an entry that is to be written to the stream.
type item struct {
	entry Entry
	file  *os.File // the file of the entry; write closes it
	info  fs.FileInfo
	data  *[bufferSize]byte // the content, if read ahead
	err   error
	ready chan struct{} // closed when data or err is set; nil if not read ahead
}

func newQueue(ctx context.Context, w io.Writer, most int64) *queue {
	raw := &counted{w: w}
	q := &queue{ctx: ctx, raw: raw, tar: tar.NewWriter(raw), most: most, ordered: make(chan *item, ahead), stop: make(chan struct{})}
	q.readers.SetLimit(helpers)
	return q
}

// put queues an item. If the stream has failed, put returns an error and does not close the item's file.
func (q *queue) put(i *item) error {
	small := i.file != nil && i.entry.Size <= bufferSize
	if small {
		i.ready = make(chan struct{})
	}
	select {
	case q.ordered <- i:
	case <-q.stop:
		return errors.New("the stream has failed")
	}
	if small {
		q.readers.Go(func() error {
			defer close(i.ready)
			i.data, _ = buffers.Get().(*[bufferSize]byte)
			i.err = i.copy(q.ctx, io.Discard, i.data[:], []extent{{0, i.entry.Size}})
			return nil
		})
	}
	return nil
}

// fail makes write return an error after it has written all items queued before.
func (q *queue) fail(err error) { q.err = err }

// finish ends the queue. Put must not be called afterwards.
func (q *queue) finish() { close(q.ordered) }

// write writes all items until end is called, and returns their index.
func (q *queue) write() (*Manifest, error) {
	m := &Manifest{}
	buf := make([]byte, bufferSize)
	var failed error
	for i := range q.ordered {
		if failed == nil {
			if failed = q.one(i, buf); failed != nil {
				close(q.stop)
			}
			m.Entries = append(m.Entries, i.entry)
		}
		if i.ready != nil {
			<-i.ready
			buffers.Put(i.data)
		}
		if i.file != nil {
			_ = i.file.Close() // nothing was written
		}
	}
	_ = q.readers.Wait() // errors are in the items
	if failed == nil {
		failed = q.err
	}
	return m, failed
}

// one writes an item.
func (q *queue) one(i *item, buf []byte) error {
	e := &i.entry
	parts := []extent{{0, e.Size}}
	switch {
	case i.ready != nil:
		if <-i.ready; i.err != nil {
			return i.err
		}
	case i.file != nil:
		parts = extents(i.file, i.info)
	}
	size := sizeOf(parts)
	err := q.room(size, *e)
	if err == nil {
		err = q.head(e, parts)
	}
	switch {
	case err != nil || i.file == nil:
	case i.data != nil:
		_, err = q.tar.Write(i.data[:size])
	case size < e.Size:
		if err = i.copy(q.ctx, q.raw, buf, parts); err == nil {
			_, err = q.raw.Write(padding(size))
		}
	default:
		err = i.copy(q.ctx, q.tar, buf, parts)
	}
	return err
}

// head writes the headers of an entry. Parts are the parts of its content that are stored.
func (q *queue) head(e *Entry, parts []extent) error {
	if sizeOf(parts) < e.Size {
		err := q.tar.Flush() // pads the last block of the previous entry
		if err == nil {
			_, err = q.raw.Write(sparseHead(e, parts))
		}
		return err
	}
	h := tar.Header{Name: e.Path, Mode: int64(e.Mode), Size: e.Size, ModTime: e.ModTime, Linkname: e.Target, Typeflag: tar.TypeReg}
	switch e.Type {
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	case Link:
		h.Typeflag = tar.TypeSymlink
	case File, impliedDir: // no entry is implied
	}
	return q.tar.WriteHeader(&h)
}

// room returns an error if more bytes would exceed the limit at this entry.
func (q *queue) room(more int64, e Entry) error {
	if q.most != fumehood.NoLimit && more > q.most-q.raw.n {
		return tooLarge("Stored", q.most, e)
	}
	return nil
}

// close writes the end of the stream.
func (q *queue) close() error {
	if err := q.tar.Close(); err != nil {
		return err
	}
	return q.room(0, Entry{})
}

// copy reads and hashes the file, which must not change meanwhile. It reads and writes only the parts; the holes
// between them count as zeros. If the file is one part and fits into buf, buf then holds the content.
func (i *item) copy(ctx context.Context, w io.Writer, buf []byte, parts []extent) error {
	e, sum := &i.entry, sha256.New()
	at := int64(0)
	for _, part := range append(parts, extent{e.Size, 0}) {
		for at < part.at {
			if ctx.Err() != nil {
				return canceledError(ctx)
			}
			n := min(part.at-at, int64(len(noBytes)))
			_, _ = sum.Write(noBytes[:n]) // never fails
			at += n
		}
		for at < part.at+part.size {
			if ctx.Err() != nil {
				return canceledError(ctx)
			}
			piece := buf[:min(part.at+part.size-at, int64(len(buf)))]
			switch n, err := i.file.ReadAt(piece, at); {
			case n == len(piece):
			case errors.Is(err, io.EOF):
				return changedError(e.Path)
			default:
				return failure("read", e.Path, fumehood.ErrInfrastructure, cause(err))
			}
			_, _ = sum.Write(piece)
			if _, err := w.Write(piece); err != nil {
				return err
			}
			at += int64(len(piece))
		}
	}
	after, err := i.file.Stat()
	if err != nil {
		return failure("read", e.Path, fumehood.ErrInfrastructure, cause(err))
	}
	if after.Size() != i.info.Size() || !after.ModTime().Equal(i.info.ModTime()) {
		return changedError(e.Path)
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}
