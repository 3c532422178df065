package imagestore

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// layer makes the store have a layer of an image that is recorded and open.
func (s *Store) layer(ctx context.Context, r reference, diff v1.Hash, from blob, b *budget) error {
	if has, err := s.exists(diff); has || err != nil {
		return err
	}
	release, err := s.lock(ctx, layerLock+diff.Hex, false)
	if err != nil {
		return err
	}
	defer release()
	if has, err := s.exists(diff); has || err != nil { // another one has unpacked it
		return err
	}
	for try := 1; ; try++ {
		err = s.unpack(ctx, r, diff, from, b)
		if _, broken := errors.AsType[interrupted](err); try >= from.tries || !broken || ctx.Err() != nil {
			return err
		}
		s.opts.Logger.Warn("layer interrupted: fetching it again", "image", r.text, "layer", diff, "error", err)
	}
}

// unpack unpacks a layer, whose lock the caller has.
func (s *Store) unpack(ctx context.Context, r reference, diff v1.Hash, from blob, b *budget) error {
	dir := s.path(unfinished, diff.Hex)
	if err := s.removeAll(ctx, dir); err != nil { // of a process that was killed
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	err := layerError(diff, s.unpackInto(ctx, r, diff, from, b, dir))
	if err == nil {
		err = os.Rename(dir, s.path(layersDir, diff.Hex))
	}
	if err != nil {
		return errors.Join(err, s.removeAll(ctx, dir))
	}
	s.opts.Progress(provider.Progress{Image: r.text, Layer: short(diff), Status: "Unpacked"})
	return nil
}

// unpackInto unpacks a layer into a folder and checks its digest.
func (s *Store) unpackInto(ctx context.Context, r reference, diff v1.Hash, from blob, b *budget, dir string) error {
	source, err := from.open(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	step := provider.Progress{Image: r.text, Layer: short(diff), Status: "Unpacking", Total: from.size}
	if file, ok := source.(member); ok {
		step.Total = file.Size()
	}
	plain, err := decompress(&meter{ctx: ctx, r: source, source: true, seen: s.reporter(step)})
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	stream := io.TeeReader(&meter{ctx: ctx, r: plain, seen: b.stream}, sum)
	files, err := s.apply(ctx, dir, stream, b)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // padding
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != diff.Hex {
		return bad("layer %s has the digest sha256:%s", diff, got)
	}
	if len(files) > 0 {
		if err := s.opts.Owners.Set(ctx, dir, files); err != nil {
			return err
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))) // a name must never stand for half a layer
}

func short(h v1.Hash) string { return h.Hex[:min(12, len(h.Hex))] }

// meter passes a stream on, counts its bytes, and ends it with its context.
type meter struct {
	ctx    context.Context // io.Reader has no other place for it
	r      io.Reader
	source bool // errors are those of the source
	seen   func(n int) error
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.r.Read(p)
	if m.source && err != nil && !errors.Is(err, io.EOF) {
		err = interrupted{err}
	}
	if err := m.seen(n); err != nil {
		return 0, err
	}
	return n, err
}

// reportEach is how many bytes of a stream are between two reports.
const reportEach = 1 << 20

// reporter returns a function that counts bytes of a step and reports them. It returns nil.
func (s *Store) reporter(step provider.Progress) func(n int) error {
	reported := int64(-reportEach)
	return func(n int) error {
		step.Current += int64(n)
		if step.Current-reported >= reportEach {
			reported = step.Current
			s.opts.Progress(step)
		}
		return nil
	}
}

// maxWindow is the maximum memory for the window of a zstd stream, in bytes. Encoders stay below it unless forced.
const maxWindow = 128 << 20

// magicSize is how many first bytes of a stream tell how it is compressed.
const magicSize = 10

// compression returns how a stream with these first bytes is compressed; empty if it is not.
func compression(magic []byte) string {
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		return "gzip"
	case len(magic) >= 4 && (string(magic[:4]) == "\x28\xb5\x2f\xfd" || magic[0]>>4 == 5 && string(magic[1:4]) == "\x2a\x4d\x18"): // the latter is skipped
		return "zstd"
	case len(magic) >= 6 && string(magic[:6]) == "\xfd7zXZ\x00":
		return "xz"
	case len(magic) >= 10 && string(magic[:3]) == "BZh" && string(magic[4:10]) == "1AY&SY":
		return "bzip2"
	}
	return ""
}

// decompress returns the plain stream of a layer.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(magicSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch kind := compression(magic); kind {
	case "xz", "bzip2":
		return nil, fail(fumehood.ErrUnsupported, "compress it by gzip or zstd", "the layer is compressed by %s", kind)
	case "gzip":
		return gzip.NewReader(b)
	case "zstd":
		d, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
