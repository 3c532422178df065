package docker

import (
	"cmp"
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImageFetcher = (*Provider)(nil)

// NeededImages returns the images that a sandbox of the spec needs.
func (p *Provider) NeededImages(ctx context.Context, spec fumehood.Spec) ([]provider.NeededImage, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Compose == nil {
		spec.Image = cmp.Or(spec.Image, p.opts.DefaultImage)
	}
	server, err := p.engine.Server(ctx)
	if err != nil {
		return nil, err
	}
	return box.NeededImages(ctx, spec, server.Arch, p.builtin)
}

// HasNeeded reports whether the daemon has an image.
func (p *Provider) HasNeeded(ctx context.Context, i provider.NeededImage) (bool, error) {
	if i.Kind == provider.NeededBuild {
		return false, nil
	}
	return p.images.Has(ctx, i.Ref, i.Platform)
}

// FetchImage makes the daemon have an image.
func (p *Provider) FetchImage(ctx context.Context, i provider.NeededImage) error {
	if !i.Kind.Fetched() {
		return image.NotFetched(i)
	}
	return box.FetchError(ctx, i, p.images.Pull(ctx, i.Ref, i.Platform))
}

// ImageStorage returns the daemon's platform. The free space of its disk is not known.
func (p *Provider) ImageStorage(ctx context.Context) (provider.ImageStorage, error) {
	server, err := p.engine.Server(ctx)
	return provider.ImageStorage{Platform: "linux/" + server.Arch, Free: -1}, err
}
