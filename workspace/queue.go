package workspace

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/fumehood/fumehood"
)

const (
	// ahead is how many entries may be under way: with a buffer each they bound the memory that is used.
	ahead = 32
	// helpers read and hash, or write, small files beside the one goroutine that has the stream.
	helpers = 3
)

// buffers holds what small files are read into, as *[bufferSize]byte.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// queue writes entries to a tar stream, in the order in which they are put in. Files of at most bufferSize
// are read and hashed ahead of that; larger ones when their turn comes.
type queue struct {
	ctx     context.Context //nolint:containedctx // one call's
	tar     *tar.Writer
	ordered chan *item
	toRead  chan *item
	stop    chan struct{} // closed when writing has failed
	err     error         // of who puts in; read when ordered is closed
	readers sync.WaitGroup
}

// item is an entry on its way to the stream.
type item struct {
	entry Entry
	file  *os.File // of a file's content; whoever has read it closes it
	info  fs.FileInfo
	data  *[bufferSize]byte // the content, where it was read ahead
	err   error
	ready chan struct{} // closed when data or err is there; nil where nothing is read ahead
}

func newQueue(ctx context.Context, w *tar.Writer) *queue {
	q := &queue{ctx: ctx, tar: w, ordered: make(chan *item, ahead), toRead: make(chan *item, ahead), stop: make(chan struct{})}
	for range helpers {
		q.readers.Go(func() {
			sum := sha256.New()
			for i := range q.toRead {
				i.data, _ = buffers.Get().(*[bufferSize]byte)
				i.err = i.copy(ctx, sum, io.Discard, i.data[:])
				close(i.ready)
			}
		})
	}
	return q
}

// put hands an item on. It fails when the stream has failed.
func (q *queue) put(i *item) error {
	small := i.file != nil && i.entry.Size <= bufferSize
	if small {
		i.ready = make(chan struct{})
	}
	select {
	case q.ordered <- i:
	case <-q.stop:
		if i.file != nil {
			_ = i.file.Close() // nothing was written
		}
		return errors.New("the stream has failed")
	}
	if small {
		q.toRead <- i
	}
	return nil
}

// fail makes write return an error, when all before it has been written.
func (q *queue) fail(err error) { q.err = err }

// end says that nothing more is put in.
func (q *queue) end() {
	close(q.toRead)
	close(q.ordered)
}

// write writes all items, until the end, and returns their index.
func (q *queue) write() (*Manifest, error) {
	m := &Manifest{}
	sum, buf := sha256.New(), make([]byte, bufferSize)
	var failed error
	for i := range q.ordered {
		if failed == nil {
			if failed = q.one(i, sum, buf); failed != nil {
				close(q.stop)
			}
			m.Entries = append(m.Entries, i.entry)
		} else if i.ready == nil && i.file != nil {
			_ = i.file.Close() // nothing was written
		}
		if i.ready != nil {
			<-i.ready
			buffers.Put(i.data)
		}
	}
	q.readers.Wait()
	if failed == nil {
		failed = q.err
	}
	return m, failed
}

// one writes an item.
func (q *queue) one(i *item, sum hash.Hash, buf []byte) error {
	if i.ready != nil {
		<-i.ready
		if i.err != nil {
			return i.err
		}
	}
	e := &i.entry
	h := tar.Header{Name: e.Path, Mode: int64(e.Mode), Size: e.Size, ModTime: e.ModTime, Linkname: e.Target, Typeflag: tar.TypeReg}
	switch e.Type {
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	case Link:
		h.Typeflag = tar.TypeSymlink
	}
	if err := q.tar.WriteHeader(&h); err != nil {
		if i.ready == nil && i.file != nil {
			_ = i.file.Close() // nothing was written
		}
		return err
	}
	switch {
	case i.data != nil:
		_, err := q.tar.Write(i.data[:e.Size])
		return err
	case i.file != nil:
		return i.copy(q.ctx, sum, q.tar, buf)
	}
	return nil
}

// copy reads the file, which must not change meanwhile, hashes it, and closes it. Where it fits into buf, it
// is there afterwards.
func (i *item) copy(ctx context.Context, sum hash.Hash, w io.Writer, buf []byte) error {
	defer i.file.Close()
	e := &i.entry
	sum.Reset()
	for left := e.Size; left > 0; {
		if ctx.Err() != nil {
			return cancelled(ctx)
		}
		n, err := io.ReadFull(i.file, buf[:min(left, int64(len(buf)))])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return changed(e.Path)
		}
		if err != nil {
			return failure("read", e.Path, fumehood.ErrInfrastructure, cause(err))
		}
		_, _ = sum.Write(buf[:n]) // a hash takes everything
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	after, err := i.file.Stat()
	if err != nil {
		return failure("read", e.Path, fumehood.ErrInfrastructure, cause(err))
	}
	if after.Size() != i.info.Size() || !after.ModTime().Equal(i.info.ModTime()) {
		return changed(e.Path)
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}
