//go:build amd64 || arm64

package native

import (
	"context"
	"fmt"
	"runtime"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImageFetcher = (*Provider)(nil)

// NeededImages returns the images that a sandbox of the spec needs.
func (p *Provider) NeededImages(ctx context.Context, spec fumehood.Spec) ([]provider.NeededImage, error) {
	if err := p.checkSpec(spec); err != nil {
		return nil, err
	}
	if spec.Compose == nil {
		spec.Image = p.imageOf(spec)
	}
	return box.NeededImages(ctx, spec, runtime.GOARCH, nil)
}

// HasNeeded reports whether the image store has an image. For a base image it asks what builds images.
func (p *Provider) HasNeeded(ctx context.Context, i provider.NeededImage) (bool, error) {
	switch i.Kind {
	case provider.NeededBuild:
		return false, nil
	case provider.NeededBase:
		b, err := p.baseFetcher(ctx)
		if err != nil {
			return false, err
		}
		return b.HasNeeded(ctx, i)
	case provider.NeededPull, provider.NeededLocal, provider.NeededDefault:
	}
	return p.images.Has(ctx, i.Ref, i.Platform)
}

// FetchImage makes the image store have an image. A base image is fetched by what builds images.
func (p *Provider) FetchImage(ctx context.Context, i provider.NeededImage) error {
	switch i.Kind {
	case provider.NeededBase:
		b, err := p.baseFetcher(ctx)
		if err != nil {
			return err
		}
		return b.FetchImage(ctx, i)
	case provider.NeededBuild, provider.NeededLocal:
		return image.NotFetched(i)
	case provider.NeededPull, provider.NeededDefault:
	}
	return box.FetchError(ctx, i, p.images.Pull(ctx, i.Ref, i.Platform))
}

// ImageStorage returns this machine's platform, and the free space on the disk of the image store.
func (p *Provider) ImageStorage(context.Context) (provider.ImageStorage, error) {
	free, err := p.store.Free()
	return provider.ImageStorage{Platform: "linux/" + runtime.GOARCH, Free: free, BasesApart: true}, err
}

// baseFetcher has the base images of what it builds.
type baseFetcher interface {
	HasNeeded(ctx context.Context, i provider.NeededImage) (bool, error)
	FetchImage(ctx context.Context, i provider.NeededImage) error
}

// baseFetcher returns what builds images, as what has their base images.
func (p *Provider) baseFetcher(ctx context.Context) (baseFetcher, error) {
	b, err := p.builder(ctx)
	if err != nil {
		return nil, err
	}
	if b, ok := b.(baseFetcher); ok {
		return b, nil
	}
	return nil, &fumehood.Error{Op: "fetch image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("%T fetches no base images", b), Hint: "start the sandbox, which builds its image"}
}

// HasNeeded reports whether the image store has a base image from its registry.
func (b *buildKit) HasNeeded(ctx context.Context, i provider.NeededImage) (bool, error) {
	return b.images.Has(ctx, i.Ref, i.Platform)
}

// FetchImage makes the image store have a base image from its registry.
func (b *buildKit) FetchImage(ctx context.Context, i provider.NeededImage) error {
	return box.FetchError(ctx, i, b.images.Pull(ctx, i.Ref, i.Platform))
}
