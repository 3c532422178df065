package imagestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/archive"
)

// Limits of what an image may have. No image that is in use comes near them.
const (
	maxLayers   = 127 // as in Docker
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

func tooLarge(what string, limit int64) error {
	return &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("image too large: %s more than %d bytes", what, limit)}
}

func tooMany(what string, n, limit int) error {
	return &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("image has %d %s, the limit is %d", n, what, limit)}
}

// readAll reads a stream of at most limit bytes. what describes it.
func readAll(r io.Reader, what string, limit int64) ([]byte, error) {
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("%s has more than %d bytes", what, limit)}
	}
	return b.Bytes(), err
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := archive.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	content, err := readAll(f, path, limit)
	return content, errors.Join(err, f.Close())
}

// digest returns the digest of bytes in memory.
func digest(content []byte) v1.Hash {
	h, _, _ := v1.SHA256(bytes.NewReader(content)) // fails only if reading does
	return h
}
