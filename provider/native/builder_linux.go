//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/native/buildkit"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImageBuilder = (*Provider)(nil)

// preparer is what builds the images of a spec's Dockerfile or Compose project: a Builder, or a buildKit.
type preparer interface {
	Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error)
	Close(ctx context.Context) error
}

// builder returns what builds images: that of the options, or else BuildKit. It is opened once.
func (p *Provider) builder(ctx context.Context) (preparer, error) {
	p.building.Lock()
	defer p.building.Unlock()
	if p.lives.Err() != nil {
		return nil, box.ClosedError()
	}
	if p.built != nil {
		return p.built, nil
	}
	err := errors.New("no Docker Engine was given to the provider")
	if p.opts.Builder != nil {
		var b Builder
		if b, err = p.opts.Builder(ctx); err == nil {
			p.built = b
			return b, nil
		}
	}
	client, kerr := buildkit.Find(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, err
	case kerr != nil:
		return nil, noBuilder(err, kerr)
	}
	p.built = newBuildKit(p, client)
	return p.built, nil
}

// noBuilder returns the error of a provider that cannot build, because of a Docker Engine's and BuildKit's.
func noBuilder(engine, buildKit error) error {
	for _, err := range []*error{&engine, &buildKit} {
		if e, ok := errors.AsType[*fumehood.Error](*err); ok { // its hint does not apply
			*err = &fumehood.Error{Op: e.Op, Err: e.Err}
		}
	}
	return &fumehood.Error{
		Op: "build image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("images are built with a Docker Engine or BuildKit: %w; %w", engine, buildKit),
		Hint: "start a Docker Engine or buildkitd here, or build the image elsewhere and use its file: docker-archive:FILE, oci-archive:FILE, oci:FOLDER",
	}
}

// imageBuilder returns the builder of images of environments. BuildKit alone builds none: it finds base images by name
// only.
func (p *Provider) imageBuilder(ctx context.Context) (provider.ImageBuilder, error) {
	b, err := p.builder(ctx)
	if err != nil {
		return nil, err
	}
	if b, ok := b.(provider.ImageBuilder); ok {
		return b, nil
	}
	return nil, &fumehood.Error{
		Op: "build image", Class: fumehood.ErrUnsupported, Err: errors.New("environments are built with a Docker Engine, not with BuildKit alone"),
		Hint: "start a Docker Engine here, or put everything into a Dockerfile",
	}
}

// closeBuilder closes the builder, if it is open.
func (p *Provider) closeBuilder(ctx context.Context) error {
	p.building.Lock()
	defer p.building.Unlock()
	if p.built == nil {
		return nil
	}
	err := p.built.Close(ctx)
	p.built = nil
	return err
}

// withoutDockerfile returns the spec of a sandbox of the image that a Dockerfile builds, if spec has a Dockerfile. It
// builds the image, unless the spec has its ID.
func (p *Provider) withoutDockerfile(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (fumehood.Spec, error) {
	if !hasDockerfile(spec) {
		return spec, nil
	}
	if spec.Images == nil {
		b, err := p.builder(ctx)
		if err != nil {
			return spec, err
		}
		opts.BuildOnly = true
		images, err := b.Prepare(ctx, spec, opts)
		if err != nil {
			return spec, err
		}
		spec.Image = images[compose.DefaultService]
	}
	spec.Compose = nil
	return spec, nil
}

// FindImage describes an image of the builder; false if it has none of that name.
func (p *Provider) FindImage(ctx context.Context, ref string) (provider.Image, bool, error) {
	b, err := p.imageBuilder(ctx)
	if err != nil {
		return provider.Image{}, false, err
	}
	return b.FindImage(ctx, ref)
}

// PullImage describes an image of the builder, which pulls it if it has none of that name.
func (p *Provider) PullImage(ctx context.Context, ref string) (provider.Image, error) {
	b, err := p.imageBuilder(ctx)
	if err != nil {
		return provider.Image{}, err
	}
	return b.PullImage(ctx, ref)
}

// BuildImage builds an image. Sandboxes can use its ID.
func (p *Provider) BuildImage(ctx context.Context, build provider.ImageBuild) (string, error) {
	b, err := p.imageBuilder(ctx)
	if err != nil {
		return "", err
	}
	return b.BuildImage(ctx, build)
}

// Images lists the images that the builder has built.
func (p *Provider) Images(ctx context.Context) ([]provider.Image, error) {
	b, err := p.imageBuilder(ctx)
	if err != nil {
		return nil, err
	}
	return b.Images(ctx)
}

// RemoveImage removes an image that the builder has built.
func (p *Provider) RemoveImage(ctx context.Context, image provider.Image) error {
	b, err := p.imageBuilder(ctx)
	if err != nil {
		return err
	}
	return b.RemoveImage(ctx, image)
}
