package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// missingImage describes an image that some services need, for missingError.
func missingImage(ref string, services []string) string {
	return ref + " (" + strings.Join(slices.Compact(slices.Sorted(slices.Values(services))), ", ") + ")"
}

// missingError returns the error for images that are missing and may not be fetched or built; nil if there are none.
func missingError(images []string, hint string) error {
	if len(images) == 0 {
		return nil
	}
	all := strings.Join(slices.Sorted(slices.Values(images)), "; ")
	return &fumehood.Error{Op: "find images", Class: fumehood.ErrConfig, Err: errors.New("missing: " + all), Hint: hint}
}

// Key returns a key of where the images of a spec with an image or a project come from. load loads the project. Equal keys
// need the same images.
func Key[Project interface{ Sources() []Source }](spec fumehood.Spec, load func() (Project, error)) (string, error) {
	switch {
	case spec.Images != nil:
		return HashOf(spec.Images), nil
	case spec.Compose == nil:
		return HashOf(spec.Image), nil
	}
	project, err := load()
	if err != nil {
		return "", err
	}
	return HashOf([]any{project.Sources(), spec.Compose.Prebuilt}), nil
}

// FindPrepared returns the images of a project's services that were prepared before. ids has their IDs by service. Ref is the
// ID too: the container runs what was prepared, whatever has its name now.
func (p *Preparer) FindPrepared(ctx context.Context, sources []Source, ids map[string]string) (map[string]Image, error) {
	arch, err := p.Store.Arch(ctx)
	if err != nil {
		return nil, err
	}
	images := map[string]Image{}
	for _, s := range sources {
		found, err := p.FindID(ctx, s.Service, ids)
		if err == nil {
			err = s.CheckArch(found, arch)
		}
		if err != nil {
			return nil, err
		}
		found.Ref = found.ID
		images[s.Service] = found
	}
	return images, nil
}

// FindID returns the image of a service that was prepared before. ids has the IDs by service.
func (p *Preparer) FindID(ctx context.Context, service string, ids map[string]string) (Image, error) {
	id := ids[service]
	if id == "" {
		return Image{}, NotPrepared(service)
	}
	found, ok, err := p.Store.Find(ctx, id)
	if err == nil && !ok {
		err = &fumehood.Error{
			Op: "find image", Service: service, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("prepared image %s no longer exists", id),
			Hint: "do not remove images while sandboxes start from them",
		}
	}
	return found, err
}

// NotPrepared returns the error of a service without an image among those that were prepared for its project.
func NotPrepared(service string) error {
	return &fumehood.Error{
		Op: "find image", Service: service, Class: fumehood.ErrConfig, Err: errors.New("no image was prepared for this service"),
		Hint: "do not change the project while its sandboxes start",
	}
}
