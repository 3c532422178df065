package box

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// NeededImages returns the images that a sandbox of a spec needs on machines of an architecture, as in provider.ImageFetcher.
// The spec has the provider's default image if it names none. builtin is as in image.Preparer.
func NeededImages(
	ctx context.Context, spec fumehood.Spec, arch string, builtin func(string) (image.Source, bool, error),
) ([]provider.NeededImage, error) {
	if spec.Compose == nil {
		return image.Needs(ctx, arch, compose.FromSpec(spec).Sources(), &fumehood.Compose{}, builtin)
	}
	project, err := LoadProject(ctx, spec, nil)
	if err != nil {
		return nil, MaskError(spec.Compose, err)
	}
	sources := project.Sources()
	mounted := project.MountedImages()
	for _, service := range slices.Sorted(maps.Keys(mounted)) {
		for _, ref := range mounted[service] {
			sources = append(sources, image.Source{Service: service + " mounts " + ref, Image: ref, Pull: image.PullMissing})
		}
	}
	all, err := image.Needs(ctx, arch, sources, spec.Compose, builtin)
	return all, MaskError(spec.Compose, err)
}

// FetchError returns the error of an image that could not be fetched, or nil. An error that names its operation is returned
// unchanged, unless ctx has ended.
func FetchError(ctx context.Context, i provider.NeededImage, err error) error {
	if e, ok := errors.AsType[*fumehood.Error](err); err == nil || ok && e.Op != "" && ctx.Err() == nil {
		return err
	}
	return Within(ctx, "fetch image "+i.Ref, err)
}
