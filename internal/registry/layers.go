package registry

import (
	"context"
	"errors"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
)

// Layer is a layer of an image in a registry.
type Layer struct {
	Digest string // of the compressed layer: "sha256:..."
	Size   int64  // compressed bytes
}

const (
	// maxManifest is the maximum size of an index, a manifest or a config, in bytes.
	maxManifest = 4 << 20
	// maxLayers is the maximum number of an image's layers. It is Docker's.
	maxLayers = 127
	// maxImage is the maximum size of an image's layers, in compressed bytes.
	maxImage = 1 << 40
	// manifestWithin bounds the time for an image's manifest, with its index and the registry's login.
	manifestWithin = 30 * time.Second
)

// Layers returns the layers of an image for a platform such as "linux/arm64", without duplicates, the lowest first. It reads
// manifests only, each of at most 4 MiB, and fails after 30 s. The sizes are what the registry says.
func (a Access) Layers(ctx context.Context, ref, platform string) ([]Layer, error) {
	fails := func(err error) error { return opError(ctx, "read manifest of "+ref, err) }
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, fails(&fumehood.Error{Class: fumehood.ErrConfig, Err: err})
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, fails(&fumehood.Error{Class: fumehood.ErrConfig, Err: err})
	}
	limited, cancel := context.WithTimeoutCause(ctx, manifestWithin, fail(fumehood.ErrUnavailable, "try again later", "no manifest within %v", manifestWithin))
	defer cancel()
	a.MaxAnswer = maxManifest
	m, err := manifest(r, append(a.Options(), remote.WithContext(limited), remote.WithPlatform(*p)))
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return nil, fails(context.Cause(limited))
	case err != nil:
		return nil, fails(Failure(ctx, r.Context().RegistryStr(), err))
	}
	layers, err := layersOf(m)
	return layers, fails(err)
}

func manifest(r name.Reference, opts []remote.Option) (*v1.Manifest, error) {
	img, err := remote.Image(r, opts...)
	if err != nil {
		return nil, err
	}
	return img.Manifest()
}

// layersOf returns the layers of a manifest.
func layersOf(m *v1.Manifest) ([]Layer, error) {
	if n := len(m.Layers); n > maxLayers {
		return nil, fail(fumehood.ErrLimit, "", "image has %d layers, the limit is %d", n, maxLayers)
	}
	var layers []Layer
	known := map[v1.Hash]bool{}
	left := int64(maxImage)
	for _, d := range m.Layers {
		if d.Size < 0 || d.Size > left {
			return nil, fail(fumehood.ErrLimit, "", "invalid size of a layer: %d bytes", d.Size)
		}
		if left -= d.Size; !known[d.Digest] {
			known[d.Digest] = true
			layers = append(layers, Layer{d.Digest.String(), d.Size})
		}
	}
	return layers, nil
}

// opError adds the operation to an error, and a class if it has none.
func opError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	}
	e := fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	if known, ok := errors.AsType[*fumehood.Error](err); ok {
		e = *known
	}
	e.Op = op
	return &e
}
