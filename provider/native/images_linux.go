//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"errors"
	"runtime"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/provider"
)

var (
	_ provider.Preparer    = (*Provider)(nil)
	_ provider.ImageLoader = (*Provider)(nil)
	_ provider.ImageFinder = (*Provider)(nil)
)

// imageOf returns the reference, or the ID, of a spec's image.
func (p *Provider) imageOf(spec fumehood.Spec) string {
	return cmp.Or(spec.Images[compose.DefaultService], spec.Image, p.opts.DefaultImage, DefaultImage)
}

// image returns the image of a spec, and fetches it if it is missing. A spec with IDs must find its image.
func (p *Provider) image(ctx context.Context, spec fumehood.Spec) (img *imagestore.Image, err error) {
	if spec.Images != nil {
		return p.store.Find(ctx, p.imageOf(spec))
	}
	err = image.WithLimit(ctx, "pull", 0, func(ctx context.Context) error {
		img, err = p.store.Get(ctx, p.imageOf(spec))
		return err
	})
	return img, err
}

// HasImage reports whether the image store has an image.
func (p *Provider) HasImage(ctx context.Context, ref string) (bool, error) {
	img, err := p.store.Find(ctx, ref)
	switch {
	case errors.Is(err, imagestore.ErrMissing):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, img.Close()
}

// ImageKey returns a hash of where the images of a spec's services come from.
func (p *Provider) ImageKey(ctx context.Context, spec fumehood.Spec) (string, error) {
	if err := p.checkSpec(spec); err != nil {
		return "", err
	}
	spec.Image = p.imageOf(spec)
	return image.Key(spec, func() (*project, error) { return p.project(ctx, spec, nil) })
}

// Prepare builds or fetches the spec's image, if it is missing.
func (p *Provider) Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	ids, err := p.prepareImages(ctx, spec, opts)
	return ids, box.MaskError(spec.Compose, err)
}

func (p *Provider) prepareImages(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	if err := p.checkSpec(spec); err != nil {
		return nil, err
	}
	spec, err := p.withoutDockerfile(ctx, spec, opts)
	if err != nil {
		return nil, err
	}
	project, err := p.project(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	images, err := project.images(ctx, opts)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for i, img := range images {
		ids[project.sources[i].Service] = img.ID
		err = errors.Join(err, img.Close())
	}
	return ids, err
}

// LoadImages adds the images of a file to those that specs can name.
func (p *Provider) LoadImages(ctx context.Context, file string) ([]provider.Image, error) {
	all, err := p.store.Import(ctx, file)
	images := make([]provider.Image, len(all))
	for n, i := range all {
		images[n] = provider.Image{ID: i.ID, Tags: []string{i.Ref}}
	}
	return images, err
}

// storeImages is the image store as a store of images to prepare. With registry, names are those of a registry, whatever a
// Docker Engine has under the name.
type storeImages struct {
	store    *imagestore.Store
	registry bool
}

// preparer returns what prepares images in the store.
func (p *Provider) preparer(registry bool) image.Preparer {
	return image.Preparer{Store: storeImages{p.store, registry}, Logger: p.log, Progress: p.opts.Progress}
}

// Arch returns the architecture of this machine.
func (s storeImages) Arch(context.Context) (string, error) { return runtime.GOARCH, nil }

// Find looks up an image of the store.
func (s storeImages) Find(ctx context.Context, ref string) (image.Image, bool, error) {
	img, err := s.get(ctx, ref, false)
	if errors.Is(err, imagestore.ErrMissing) {
		return image.Image{}, false, nil
	}
	if err != nil {
		return image.Image{}, false, err
	}
	return image.Image{Ref: ref, ID: img.ID, Pinned: img.Pinned, OS: "linux", Arch: runtime.GOARCH, OnBuild: img.Config.OnBuild}, true, img.Close()
}

// Fetch gets an image as imagestore.Get does.
func (s storeImages) Fetch(ctx context.Context, ref, _ string) error {
	img, err := s.get(ctx, ref, true)
	if err != nil {
		return err
	}
	return img.Close()
}

func (s storeImages) get(ctx context.Context, ref string, fetch bool) (*imagestore.Image, error) {
	switch {
	case s.registry:
		return s.store.Pull(ctx, ref, fetch)
	case fetch:
		return s.store.Get(ctx, ref)
	}
	return s.store.Find(ctx, ref)
}
