//go:build amd64 || arm64

package native

import (
	"context"
	"errors"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/imagestore"
	"github.com/fumehood/fumehood/provider"
)

// project is the Compose project of a spec, which has one service that only waits.
type project struct {
	*compose.Project
	p      *Provider
	spec   fumehood.Spec
	source compose.Source
}

// project loads the project of a spec with a name. The error is an ErrUnsupported that names file and line if this
// provider cannot run it. With a recorder, the journal shows no value of the project's variables.
func (p *Provider) project(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (*project, error) {
	loaded, err := compose.Load(ctx, spec.Name, *spec.Compose)
	if err != nil {
		if failed, ok := errors.AsType[*compose.LoadError](err); ok && rec != nil {
			rec.Hide(failed.Variables)
		}
		return nil, err
	}
	if rec != nil {
		for _, env := range loaded.Variables() {
			rec.Hide(env)
		}
	}
	if err := loaded.CheckSingle(); err != nil {
		return nil, err
	}
	return &project{loaded, p, spec, loaded.Sources()[0]}, nil
}

// image returns the image of the service. An image that the project builds is built by the provider's builder.
func (j *project) image(ctx context.Context, opts provider.PrepareOptions) (img *imagestore.Image, err error) {
	if j.spec.Images != nil {
		return j.p.store.Find(ctx, j.spec.Images[j.source.Service])
	}
	if j.source.Build == nil {
		if j.spec.Compose.Prebuilt || j.source.Pull == compose.PullNever {
			return j.p.store.Find(ctx, j.source.Image)
		}
		err = compose.Limited(ctx, "pull", j.spec.Compose.PullTimeout, func(ctx context.Context) error {
			img, err = j.p.store.Get(ctx, j.source.Image)
			return err
		})
		return img, err
	}
	b, err := j.p.builder(ctx)
	if err != nil {
		return nil, err
	}
	images, err := b.Prepare(ctx, j.spec, opts)
	if err != nil {
		return nil, err
	}
	return j.p.store.Get(ctx, images[j.source.Service])
}

// single returns the spec of the sandbox of the project, and logs what weakens its isolation.
func (j *project) single(image *imagestore.Image) (fumehood.Spec, error) {
	if h := image.Config.Healthcheck; h != nil && len(h.Test) > 0 && h.Test[0] != "NONE" {
		return j.spec, j.Unsupported("image", "it has a health check, which the native provider does not run")
	}
	spec, changes, err := j.SingleSpec(j.spec, compose.Image{Entrypoint: image.Config.Entrypoint, Command: image.Config.Cmd})
	if err != nil {
		return spec, err
	}
	log := j.p.loggerOf(spec).With("sandbox", spec.Name)
	for _, u := range j.Unset() {
		log.Warn("a variable is not set, and so empty in the Compose file; "+compose.OnlyNamed, "variable", u.Name, "at", u.At)
	}
	for _, c := range changes {
		if c.Unsafe {
			log.Warn("the isolation is broken, as the run allows", "service", c.Service, "key", c.Key, "value", c.To, "reason", c.Reason)
		}
	}
	return spec, nil
}

// serviceOf returns the name of the service of a spec. That of a project is set by compose.SingleSpec.
func serviceOf(spec fumehood.Spec) string {
	if spec.Compose != nil {
		return spec.Compose.Service
	}
	return defaultService
}
