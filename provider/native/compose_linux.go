//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/provider"
)

// project is the Compose project of a spec.
type project struct {
	*compose.Project
	p       *Provider
	spec    fumehood.Spec
	sources []image.Source
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
	if err := loaded.CheckPod(spec.Keep); err != nil {
		return nil, err
	}
	return &project{loaded, p, spec, loaded.Sources()}, nil
}

// images returns the images of all services, in the order of the sources. Images that the project builds are built by
// the provider's builder.
func (j *project) images(ctx context.Context, opts provider.PrepareOptions) (all []*imagestore.Image, err error) {
	if err := j.checkPresent(ctx); err != nil {
		return nil, err
	}
	var built map[string]string
	if j.spec.Images == nil && slices.ContainsFunc(j.sources, func(s image.Source) bool { return s.Build != nil }) {
		b, err := j.p.builder(ctx)
		if err != nil {
			return nil, err
		}
		opts.BuildOnly = true
		if built, err = b.Prepare(ctx, j.spec, opts); err != nil {
			return nil, err
		}
	}
	err = image.Limited(ctx, "pull", j.spec.Compose.PullTimeout, func(ctx context.Context) error {
		for _, s := range j.sources {
			img, err := j.image(ctx, s, built)
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

// image returns the image of a service. built are the images that the project builds.
func (j *project) image(ctx context.Context, s image.Source, built map[string]string) (*imagestore.Image, error) {
	switch {
	case j.spec.Images != nil:
		return j.p.store.Find(ctx, j.spec.Images[s.Service])
	case built[s.Service] != "":
		return j.p.store.Get(ctx, built[s.Service])
	case j.onlyFound(s):
		return j.p.store.Find(ctx, s.Image)
	}
	return j.p.store.Get(ctx, s.Image)
}

// builds returns the service that builds the image of a name; empty if there is none.
func builds(sources []image.Source, image string) (service string) {
	for _, s := range sources {
		if s.Build != nil && s.Image == image {
			return s.Service
		}
	}
	return ""
}

// onlyFound reports whether the image of a service without a build must be in the store.
func (j *project) onlyFound(s image.Source) bool {
	return j.spec.Compose.Prebuilt || s.Pull == image.PullNever
}

// checkPresent returns an error that names all images that are missing and may not be fetched.
func (j *project) checkPresent(ctx context.Context) error {
	if j.spec.Images != nil {
		return nil
	}
	users, missing := map[string][]string{}, []string{}
	for _, s := range j.sources {
		if builds(j.sources, s.Image) != "" || s.Build != nil || !j.onlyFound(s) {
			continue
		}
		img, err := j.p.store.Find(ctx, s.Image)
		switch {
		case errors.Is(err, imagestore.ErrMissing):
			users[s.Image] = append(users[s.Image], s.Service)
		case err != nil:
			return err
		default:
			if err := img.Close(); err != nil {
				return err
			}
		}
	}
	for ref, services := range users {
		missing = append(missing, image.MissingImage(ref, services))
	}
	return image.Missing(missing, "start the project once where images may be fetched, or leave out pull_policy: never and x-local")
}

// plan returns the services of the project, the default one first, and logs what weakens their isolation. With an
// error, the caller must release the images all the same.
func (j *project) plan(ctx context.Context) ([]servicePlan, error) {
	images, err := j.images(ctx, provider.PrepareOptions{})
	if err != nil {
		return nil, err
	}
	byName, plans := map[string]compose.Image{}, map[string]servicePlan{}
	for i, img := range images {
		name := j.sources[i].Service
		plans[name] = servicePlan{image: img}
		c := compose.Image{Entrypoint: img.Config.Entrypoint, Command: img.Config.Cmd}
		if h := img.Config.Healthcheck; h != nil {
			c.Health = compose.Health{Test: h.Test, StartPeriod: h.StartPeriod, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
		}
		byName[name] = c
	}
	members, changes, err := j.Members(j.spec, byName)
	var all []servicePlan
	for i, m := range members {
		plan := plans[m.Name]
		plan.spec, plan.member = m.Spec, &members[i]
		all = append(all, plan)
	}
	if err != nil {
		return all, err
	}
	log := j.p.loggerOf(j.spec).With("sandbox", j.spec.Name)
	for _, w := range j.Warnings() {
		log.Warn(w.Reason, "key", w.Key, "at", w.At)
	}
	for _, u := range j.Unset() {
		log.Warn("a variable is not set, and so empty in the Compose file; "+compose.OnlyNamed, "variable", u.Name, "at", u.At)
	}
	for _, c := range changes {
		if c.Unsafe {
			log.Warn("the isolation is broken, as the run allows", "service", c.Service, "key", c.Key, "value", c.To, "reason", c.Reason)
		}
	}
	return all, nil
}

// serviceOf returns the name of the service of a spec. That of a project is set by compose.Members.
func serviceOf(spec fumehood.Spec) string {
	if spec.Compose != nil {
		return spec.Compose.Service
	}
	return defaultService
}
