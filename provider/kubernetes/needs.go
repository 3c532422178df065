package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"runtime"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImagePlanner = (*Provider)(nil)

// NeededImages returns the images that a sandbox of the spec needs. It reads files on this machine, takes the nodes'
// architecture for this machine's, and does not contact the cluster.
func (p *Provider) NeededImages(ctx context.Context, spec fumehood.Spec) ([]provider.NeededImage, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Compose == nil {
		spec.Image = cmp.Or(spec.Images[serviceName], spec.Image, p.opts.DefaultImage)
	}
	return box.NeededImages(ctx, spec, runtime.GOARCH, nil)
}

// HasNeeded returns false: only the nodes know their images. A build, and what it is built on, is an ErrUnsupported.
func (p *Provider) HasNeeded(_ context.Context, i provider.NeededImage) (bool, error) {
	unsupported := func(text string) (bool, error) {
		return false, &fumehood.Error{
			Op: "look up image " + i.Ref, Class: fumehood.ErrUnsupported, Err: errors.New(text), Hint: "build it elsewhere, push it to a registry, and name it",
		}
	}
	switch i.Kind {
	case provider.NeededBuild:
		return unsupported("the provider kubernetes builds no images")
	case provider.NeededBase:
		return unsupported("only a build needs it, and the provider kubernetes builds no images")
	case provider.NeededPull, provider.NeededLocal, provider.NeededDefault:
	}
	return false, nil
}

// ImageStorage returns this machine's platform. It is not known which images the nodes have.
func (p *Provider) ImageStorage(context.Context) (provider.ImageStorage, error) {
	return provider.ImageStorage{Platform: "linux/" + runtime.GOARCH, Free: -1, BasesApart: true, Hidden: true}, nil
}
