package imagestore

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// layer makes the store have a layer.
func (s *Store) layer(ctx context.Context, r reference, diff v1.Hash, from blob, b *budget) error {
	release, err := s.lock(ctx, layerLock+diff.Hex, true)
	if err != nil {
		return err
	}
	has, err := s.exists(diff)
	release()
	if has || err != nil {
		return err
	}
	if release, err = s.lock(ctx, layerLock+diff.Hex, false); err != nil {
		return err
	}
	defer release()
	if has, err := s.exists(diff); has || err != nil {
		return err
	}
	for try := 1; ; try++ {
		err = s.unpack(ctx, r, diff, from, b)
		var broken interrupted
		if try >= from.tries || !errors.As(err, &broken) || ctx.Err() != nil {
			return err
		}
		s.opts.Logger.Warn("layer interrupted: fetching it again", "image", r.text, "layer", diff, "error", err)
	}
}

// unpack unpacks a layer, whose lock the caller has.
func (s *Store) unpack(ctx context.Context, r reference, diff v1.Hash, from blob, b *budget) (err error) {
	dir := s.path(unfinished, diff.Hex)
	if err := s.removeAll(ctx, dir); err != nil { // of a process that was killed
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.removeAll(ctx, dir))
		}
	}()
	source, err := from.open(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	step := Progress{Image: r.text, Layer: short(diff), Status: "Unpacking", Total: from.size}
	plain, err := decompress(&meter{ctx: ctx, r: source, report: s.reporter(step)})
	if err != nil {
		return layerError(diff, err)
	}
	defer plain.Close()
	sum := sha256.New()
	stream := io.TeeReader(&meter{ctx: ctx, r: plain, count: b.stream}, sum)
	files, err := s.apply(ctx, dir, stream, b)
	if err != nil {
		return layerError(diff, err)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // padding
		return layerError(diff, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != diff.Hex {
		return bad("layer %s has the digest sha256:%s", diff, got)
	}
	if err := syncAll(dir); err != nil { // a name must never stand for half a layer
		return err
	}
	if err := s.complete(ctx, dir, s.path(layersDir, diff.Hex), files); err != nil {
		return err
	}
	s.opts.Progress(Progress{Image: r.text, Layer: short(diff), Status: "Unpacked"})
	return nil
}

// layerError returns the error of a layer that cannot be unpacked. All but those of the disk and of the source are the
// layer's fault.
func layerError(diff v1.Hash, err error) error {
	var broken interrupted
	if isDisk(err) || errors.As(err, &broken) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("layer %s: %w", short(diff), err)
	}
	if classed(err) {
		return err
	}
	return bad("layer %s: %w", short(diff), err)
}

func short(h v1.Hash) string { return h.Hex[:min(12, len(h.Hex))] }

// meter passes a stream on, counts and reports its bytes, and ends it with its context.
type meter struct {
	ctx    context.Context // io.Reader has no other place for it
	r      io.Reader
	count  func(n int) error // may be nil
	report func(n int)       // may be nil
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.r.Read(p)
	if m.report != nil {
		m.report(n)
		if err != nil && !errors.Is(err, io.EOF) {
			err = interrupted{err}
		}
	}
	if m.count != nil {
		if err := m.count(n); err != nil {
			return 0, err
		}
	}
	return n, err
}

// reportEach is how many bytes of a stream are between two reports.
const reportEach = 1 << 20

// reporter returns a function that counts bytes of a step and reports them.
func (s *Store) reporter(step Progress) func(n int) {
	reported := int64(-reportEach)
	return func(n int) {
		step.Current += int64(n)
		if step.Current-reported >= reportEach {
			reported = step.Current
			s.opts.Progress(step)
		}
	}
}

// maxWindow is the maximum memory for the window of a zstd stream, in bytes. Encoders stay below it unless forced.
const maxWindow = 128 << 20

// compression returns how a stream with these first bytes is compressed; empty if it is not.
func compression(magic []byte) string {
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		return "gzip"
	case len(magic) >= 4 && string(magic[:4]) == "\x28\xb5\x2f\xfd":
		return "zstd"
	}
	return ""
}

// decompress returns the plain stream of a layer.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch compression(magic) {
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
