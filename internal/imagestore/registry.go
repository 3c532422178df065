package imagestore

import (
	"context"
	"io"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// retries are the pauses before further requests to a registry that is busy or broken: 1, 3 and 9 seconds.
var retries = remote.Backoff{Duration: time.Second, Factor: 3, Jitter: 0.1, Steps: 4}

// layerTries is how often a layer is fetched if its connection breaks.
const layerTries = 3

// registryBlobs is a repository of a registry as a source of blobs.
type registryBlobs struct {
	puller *remote.Puller
	repo   name.Repository
}

// pull finds an image in its registry, with the user's credentials.
func (s *Store) pull(ctx context.Context, r reference) (*contents, error) {
	puller, err := remote.NewPuller(
		remote.WithAuthFromKeychain(s.keychain), remote.WithRetryBackoff(s.retries), remote.WithUserAgent("fumehood"),
	)
	if err != nil {
		return nil, err
	}
	reg := registryBlobs{puller, r.name.Context()}
	manifest, err := reg.get(ctx, r.name)
	if err != nil {
		return nil, err
	}
	return resolve(ctx, reg, manifest, s.opts.Arch)
}

func (g registryBlobs) get(ctx context.Context, ref name.Reference) ([]byte, error) {
	found, err := g.puller.Get(ctx, ref) // checks the digest, if ref has one
	if err != nil {
		return nil, g.failure(ctx, err)
	}
	if len(found.Manifest) > maxManifest {
		return nil, tooLarge("its manifest has", maxManifest)
	}
	return found.Manifest, nil
}

func (g registryBlobs) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	return g.get(ctx, g.repo.Digest(d.Digest.String()))
}

func (g registryBlobs) config(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	r, err := g.open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := verified(r, d, maxConfig)
	return content, g.failure(ctx, err)
}

func (g registryBlobs) failure(ctx context.Context, err error) error {
	return pullFailure(ctx, g.repo.RegistryStr(), err)
}

func (g registryBlobs) layer(d v1.Descriptor) blob {
	return blob{size: d.Size, tries: layerTries, open: func(ctx context.Context) (io.ReadCloser, error) { return g.open(ctx, d) }}
}

func (g registryBlobs) open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	layer, err := g.puller.Layer(ctx, g.repo.Digest(d.Digest.String()))
	if err != nil {
		return nil, g.failure(ctx, err)
	}
	r, err := layer.Compressed()
	return r, g.failure(ctx, err)
}
