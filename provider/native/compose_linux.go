//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/provider"
)

// project is the project of a spec, with files or without.
type project struct {
	*compose.Project
	p       *Provider
	spec    fumehood.Spec
	sources []image.Source
}

// project loads the project of a spec. The error is an ErrUnsupported that names file and line if this
// provider cannot run it. With a recorder, the journal shows no value of the project's variables.
func (p *Provider) project(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (*project, error) {
	if spec.Compose == nil {
		made := compose.FromSpec(spec)
		return &project{made, p, spec, made.Sources()}, nil
	}
	loaded, err := box.LoadProject(ctx, spec, rec)
	if err != nil {
		return nil, err
	}
	if err := loaded.CheckPod(runner, spec.Keep); err != nil {
		return nil, err
	}
	return &project{loaded, p, spec, loaded.Sources()}, nil
}

// images returns the images of all services, in the order of the sources. Images that the project builds are built by
// the provider's builder, after the others are there.
func (j *project) images(ctx context.Context, opts provider.PrepareOptions) (all []*imagestore.Image, err error) {
	if j.spec.Compose == nil {
		img, err := j.p.image(ctx, j.spec)
		if err != nil {
			return nil, err
		}
		return []*imagestore.Image{img}, nil
	}
	ids := j.spec.Images
	if ids == nil {
		if ids, err = j.prepare(ctx, opts); err != nil {
			return nil, err
		}
	}
	err = image.WithLimit(ctx, "pull", j.spec.Compose.PullTimeout, func(ctx context.Context) error {
		for _, s := range j.sources {
			get, ref := j.p.store.Get, cmp.Or(ids[s.Service], s.Image)
			if j.spec.Images != nil && ids[s.Service] == "" { // an image of that name may be any
				return image.NotPrepared(s.Service)
			}
			if j.spec.Images != nil || ids[s.Service] == "" && (j.spec.Compose.Prebuilt || s.Pull == image.PullNever) {
				get = j.p.store.Find
			}
			img, err := get(ctx, ref)
			if err != nil {
				return err
			}
			all = append(all, img)
		}
		return nil
	})
	if err != nil {
		for _, img := range all {
			err = errors.Join(err, img.Close())
		}
		return nil, err
	}
	return all, nil
}

// prepare checks the project's Dockerfiles, and makes sure that the image store has the images of services that the project
// does not build. Then it builds the others, and returns their IDs by service. Without a builder, built-in images are those
// that the store has.
func (j *project) prepare(ctx context.Context, opts provider.PrepareOptions) (built map[string]string, err error) {
	if err := image.Check(ctx, runtime.GOARCH, j.sources, j.spec.Compose); err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(j.sources), func(s image.Source) bool { return s.IsBuilt(j.sources) })
	if _, err := j.p.images.Prepare(ctx, others, j.spec.Compose, provider.PrepareOptions{}); err != nil || len(others) == len(j.sources) {
		return nil, err
	}
	b, err := j.p.builder(ctx)
	switch {
	case errors.Is(err, fumehood.ErrUnsupported) && j.hasBuiltins(ctx):
		return nil, nil
	case err != nil:
		return nil, err
	}
	opts.BuildOnly = true
	return b.Prepare(ctx, j.spec, opts)
}

// hasBuiltins reports whether what the project builds are built-in images, all of which the image store has.
func (j *project) hasBuiltins(ctx context.Context) bool {
	for _, s := range j.sources {
		if s.Build != nil {
			return false
		}
		if !s.IsBuilt(j.sources) {
			continue
		}
		img, err := j.p.store.Find(ctx, s.Image)
		if err != nil || img.Close() != nil {
			return false
		}
	}
	return true
}

// servicePlan is a service to make.
type servicePlan struct {
	compose.Member
	image  *imagestore.Image
	mounts []setup.Mount // those of Spec, as checked
}

// plan returns the services of the project, the default one first, and logs what weakens their isolation.
func (j *project) plan(ctx context.Context) ([]servicePlan, error) {
	images, err := j.images(ctx, provider.PrepareOptions{})
	if err != nil {
		return nil, err
	}
	byName, stored := map[string]compose.Image{}, map[string]*imagestore.Image{}
	for i, img := range images {
		name := j.sources[i].Service
		stored[name] = img
		c := compose.Image{Entrypoint: img.Config.Entrypoint, Command: img.Config.Cmd}
		if h := img.Config.Healthcheck; h != nil {
			c.Health = compose.Health{Test: h.Test, StartPeriod: h.StartPeriod, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
		}
		byName[name] = c
	}
	members, changes, err := j.Members(j.spec, byName)
	if err != nil {
		for _, img := range images {
			err = errors.Join(err, img.Close())
		}
		return nil, err
	}
	j.p.life.LogFiles(j.spec, j.Project)
	j.p.life.LogChanges(j.spec, changes)
	all := make([]servicePlan, len(members))
	for i, m := range members {
		all[i] = servicePlan{Member: m, image: stored[m.Name]}
	}
	return all, nil
}
