package imagestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
)

// Limits of what an image may have. No image that is in use comes near them.
const (
	maxLayers   = 127 // as in Docker
	maxVolumes  = 127
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
	maxDepth    = 4       // of indexes in indexes
	maxMembers  = 100_000 // files of an archive that has an image
)

// limits are those of an image's layers, added up.
type limits struct {
	bytes   int64 // of the uncompressed streams, and also of the files in them, which sparse ones enlarge
	entries int64
	names   int64 // bytes of all names and targets of links, which are kept in memory while a layer is unpacked
}

var defaultLimits = limits{bytes: 64 << 30, entries: 1_000_000, names: 256 << 20}

// budget counts towards the limits. Layers that are unpacked at the same time share it.
type budget struct {
	limits                          limits
	streamed, files, entries, names atomic.Int64
}

func newBudget(l limits) *budget { return &budget{limits: l} }

// stream counts bytes of a stream.
func (b *budget) stream(n int) error {
	if b.streamed.Add(int64(n)) > b.limits.bytes {
		return tooLarge("its layers have", b.limits.bytes)
	}
	return nil
}

// entry counts an entry of a layer. names is the size of its names, size that of its content.
func (b *budget) entry(names int, size int64) error {
	switch {
	case b.entries.Add(1) > b.limits.entries:
		return tooMany("files", int(b.entries.Load()), int(b.limits.entries))
	case b.names.Add(int64(names)) > b.limits.names:
		return tooLarge("names of its files have", b.limits.names)
	case size < 0 || size > b.limits.bytes || b.files.Add(size) > b.limits.bytes:
		return tooLarge("its files have", b.limits.bytes)
	}
	return nil
}

// readAll reads a stream of at most limit bytes. name describes it.
func readAll(r io.Reader, name string, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fail(fumehood.ErrLimit, "", "%s has more than %d bytes", name, limit)
	}
	return content, err
}

// digest returns the digest of bytes in memory.
func digest(content []byte) v1.Hash {
	h, _, _ := v1.SHA256(bytes.NewReader(content)) // fails only if reading does
	return h
}

func fail(class error, hint, format string, args ...any) error {
	return &fumehood.Error{Class: class, Err: fmt.Errorf(format, args...), Hint: hint}
}

// bad returns the error of an image whose content is not valid.
func bad(format string, args ...any) error {
	return fail(fumehood.ErrConfig, "", "bad image: "+format, args...)
}

// badFile returns the error of a file or folder that has no image, or none that can be used.
func badFile(err error) error {
	if classed(err) {
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrFile, Err: err}
}

func tooLarge(name string, limit int64) error {
	return fail(fumehood.ErrLimit, "", "image too large: %s more than %d bytes", name, limit)
}

func tooMany(name string, n, limit int) error {
	return fail(fumehood.ErrLimit, "", "image has %d %s, the limit is %d", n, name, limit)
}

// wrongPlatform returns the error of an image that exists only for other platforms.
func wrongPlatform(has ...string) error {
	return fail(fumehood.ErrUnsupported, "", "image is for %s, this machine needs linux/%s", strings.Join(has, ", "), runtime.GOARCH)
}

// classed reports whether an error has one of the module's classes.
func classed(err error) bool {
	_, ok := errors.AsType[*fumehood.Error](err)
	return ok
}

// interrupted is the error of a stream whose source failed, such as a connection that broke.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

// ownFailures are errors that are not the fault of a layer, but of the store's disk or this process.
var ownFailures = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES,
	context.Canceled, context.DeadlineExceeded,
}

// layerError returns the error of a layer that cannot be unpacked, or nil.
func layerError(diff v1.Hash, err error) error {
	_, broken := errors.AsType[interrupted](err)
	if broken || slices.ContainsFunc(ownFailures, func(e error) bool { return errors.Is(err, e) }) {
		return fmt.Errorf("layer %s: %w", short(diff), err)
	}
	if err == nil || classed(err) {
		return err
	}
	return bad("layer %s: %w", short(diff), err)
}

// translate gives an error one of the module's classes, and the operation.
func (s *Store) translate(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	e := fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	if known, ok := errors.AsType[*fumehood.Error](err); ok {
		e = *known
	} else if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.Hint = "the disk of the image store is full: free space in " + s.dir + "; `fumehood cleanup --caches` removes unused images"
	}
	if ctx.Err() != nil {
		e = fumehood.Error{Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	}
	e.Op = cmp.Or(e.Op, op)
	return &e
}
