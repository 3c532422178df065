package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
)

// prepared is the image of a service.
type prepared struct {
	engine.Image
	Ref string // what to start: the reference, or the name of what was built
}

// prepare makes sure that the daemon has the images of all services of a project, and returns them by service.
// First all that is missing is pulled, the images that others are built on too; then what has to be built is
// built. Nothing is begun where anything is missing that may not be pulled or built: the error lists all of it. No
// build gets what is excluded.
func (p *Provider) prepare(ctx context.Context, sources []compose.Source, opts *fumehood.Compose, exclude []string) (map[string]prepared, error) {
	sources = slices.Clone(sources)
	for i := range sources {
		sources[i].AllowUnsafe, sources[i].Exclude = opts.AllowUnsafe, exclude
	}
	plan, err := p.planImages(sources)
	if err != nil {
		return nil, err
	}
	missing, err := p.find(ctx, plan, opts.Prebuilt)
	if err == nil && !opts.Prebuilt {
		err = missingImages(missing, "pull or build them, or leave out pull_policy: never and x-local")
	}
	if err == nil && !opts.Prebuilt {
		err = limited(ctx, "pull", opts.PullTimeout, func(ctx context.Context) error { return p.pullAll(ctx, plan) })
	}
	if err == nil {
		err = limited(ctx, "build", opts.BuildTimeout, func(ctx context.Context) error { return p.buildAll(ctx, plan, opts.Prebuilt) })
	}
	if err == nil {
		for _, b := range plan.builds {
			if b.missing {
				missing = append(missing, fmt.Sprintf("what is built of %s (%s)", cmp.Or(b.source.Build.Context, "its Dockerfile"), b.source.Service))
			}
		}
		err = missingImages(missing, "start the project once where images may be pulled and built")
	}
	if err != nil {
		return nil, err
	}
	images := map[string]prepared{}
	for _, s := range plan.sources {
		image := prepared{plan.have[plan.wantOf(s)], s.Image}
		if b := plan.buildOf(s); b != nil {
			image = prepared{b.image, b.ref}
		}
		if err := p.checkArch(s, image.Image); err != nil {
			return nil, err
		}
		images[s.Service] = image
	}
	return images, nil
}

// findPrepared are the images of all services of a project that were prepared before, by their ids.
func (p *Provider) findPrepared(ctx context.Context, sources []compose.Source, ids map[string]string) (map[string]prepared, error) {
	images := map[string]prepared{}
	for _, s := range sources {
		image, err := p.findID(ctx, s.Service, ids[s.Service])
		if err == nil {
			err = p.checkArch(s, image)
		}
		if err != nil {
			return nil, err
		}
		images[s.Service] = prepared{image, image.ID}
	}
	return images, nil
}

// findID is the image of a service that was prepared before.
func (p *Provider) findID(ctx context.Context, service, id string) (engine.Image, error) {
	fail := func(class error, hint, format string, a ...any) (engine.Image, error) {
		return engine.Image{}, &fumehood.Error{Op: "find image", Service: service, Class: class, Err: fmt.Errorf(format, a...), Hint: hint}
	}
	if id == "" {
		return fail(fumehood.ErrConfig, "leave the project as it is while sandboxes of it are started", "none was prepared for this service")
	}
	image, found, err := p.engine.Image(ctx, id)
	if err == nil && !found {
		return fail(fumehood.ErrInfrastructure, "remove no images while sandboxes of them are started", "%s, which was prepared, is not there any more", id)
	}
	return image, err
}

// phaseTimeout bounds all pulls, and all builds, where a project does not say how long they may take.
const phaseTimeout = time.Hour

// limited runs a phase of a start, whose error says which limit has ended it.
func limited(ctx context.Context, phase string, limit time.Duration, f func(context.Context) error) error {
	limit = cmp.Or(limit, phaseTimeout)
	begun := time.Now()
	late := errors.New("late")
	bounded, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := f(bounded)
	if err == nil || !errors.Is(context.Cause(bounded), late) {
		return err
	}
	e := &fumehood.Error{Op: phase + " images", Class: fumehood.ErrLimit, Err: fmt.Errorf("not done within the limit of %s, after %s", limit, time.Since(begun).Round(time.Second))}
	var known *fumehood.Error
	if errors.As(err, &known) {
		e.Op, e.Service = known.Op, known.Service
	}
	return e
}

// imagePlan is where the images of a project come from.
type imagePlan struct {
	sources []compose.Source
	builds  []*imageBuild
	built   map[string]*imageBuild // by the names that they get, and by "service NAME"
	wants   map[want][]string      // what is not built, with the services that want it
	have    map[want]engine.Image  // what of it the daemon has
}

// want is an image that is not built.
type want struct {
	ref, platform string
	pull          string
	age           time.Duration
}

// planImages reads the Dockerfiles and asks no daemon.
func (p *Provider) planImages(sources []compose.Source) (*imagePlan, error) {
	plan := &imagePlan{sources: sources, built: map[string]*imageBuild{}, wants: map[want][]string{}, have: map[want]engine.Image{}}
	for _, s := range sources {
		if s.Build == nil {
			continue
		}
		if err := p.planBuild(plan, s); err != nil {
			return nil, err
		}
	}
	for _, s := range sources {
		if err := p.planBuiltin(plan, s.Image); err != nil {
			return nil, err
		}
		if plan.buildOf(s) == nil {
			w := plan.wantOf(s)
			plan.wants[w] = append(plan.wants[w], s.Service)
		}
	}
	for i := 0; i < len(plan.builds); i++ { // builtin ones come to them
		b := plan.builds[i]
		for _, ref := range b.dockerfile.Bases {
			if err := p.planBuiltin(plan, ref); err != nil {
				return nil, err
			}
			if on := plan.built[familiar(ref)]; on != nil && on != b {
				b.on[ref] = on
				continue
			}
			w := want{ref: ref, platform: b.source.Platform, pull: compose.PullMissing}
			if b.source.Build.Pull {
				w.pull = compose.PullAlways
			}
			b.bases[ref] = w
			plan.wants[w] = append(plan.wants[w], b.source.Service)
		}
	}
	return plan, nil
}

func (p *Provider) planBuild(plan *imagePlan, s compose.Source) error {
	b, err := p.newImageBuild(s)
	if err != nil {
		return err
	}
	plan.builds = append(plan.builds, b)
	plan.built["service "+s.Service] = b
	for _, name := range b.names {
		plan.built[name] = b
	}
	return nil
}

// planBuiltin adds the build of an image that ships with the library, if the reference is one's that nothing else
// here builds.
func (p *Provider) planBuiltin(plan *imagePlan, ref string) error {
	s, is := p.builtin(ref)
	if !is || plan.built[familiar(ref)] != nil {
		return nil
	}
	return p.planBuild(plan, s)
}

// buildOf is the build that makes a service's image: its own, or that of another service with that name.
func (plan *imagePlan) buildOf(s compose.Source) *imageBuild {
	if b := plan.built["service "+s.Service]; b != nil {
		return b
	}
	return plan.built[familiar(s.Image)]
}

func (plan *imagePlan) wantOf(s compose.Source) want { return want{s.Image, s.Platform, s.Pull, s.Age} }

// familiar is a reference as the Engine lists it, or itself where it is none.
func familiar(ref string) string {
	if tag, err := engine.Tag(ref); err == nil {
		return tag
	}
	return ref
}

// find looks up what is not built, and tells what of it is missing and may not be pulled.
func (p *Provider) find(ctx context.Context, plan *imagePlan, prebuilt bool) (missing []string, err error) {
	for w, services := range plan.wants {
		image, found, err := p.engine.Image(ctx, w.ref)
		if err != nil {
			return nil, err
		}
		if found && isFor(image, w.platform) {
			plan.have[w] = image
		} else if prebuilt || w.pull == compose.PullNever {
			services = slices.Compact(slices.Sorted(slices.Values(services)))
			missing = append(missing, fmt.Sprintf("%s (%s)", w.ref, strings.Join(services, ", ")))
		}
	}
	return missing, nil
}

// missingImages is the error of images that are not there; nil where there is none.
func missingImages(missing []string, hint string) error {
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	return &fumehood.Error{Op: "find images", Class: fumehood.ErrConfig, Err: fmt.Errorf("not there: %s", strings.Join(missing, "; ")), Hint: hint}
}

// pullAll pulls what is missing, and what is always to be pulled.
func (p *Provider) pullAll(ctx context.Context, plan *imagePlan) error {
	var pulls []want
	for w := range plan.wants {
		image, there := plan.have[w]
		if !there || w.pull == compose.PullAlways && time.Since(image.Tagged) > w.age {
			pulls = append(pulls, w)
		}
	}
	images := make([]engine.Image, len(pulls))
	err := together(ctx, len(pulls), func(ctx context.Context, i int) (err error) {
		images[i], err = p.pull(ctx, pulls[i].ref, pulls[i].platform, pulls[i].pull == compose.PullAlways)
		return inService(err, plan.wants[pulls[i]][0])
	})
	if err != nil {
		return err
	}
	for i, w := range pulls {
		plan.have[w] = images[i]
	}
	return nil
}

// together calls f for 0 to n-1, and ends the others when one has failed, whose error it returns.
func together(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	of, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := inParallel(n, func(i int) error {
		err := f(of, i)
		if err != nil {
			cancel(err)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		return context.Cause(of)
	}
	return err
}

// inService says for which service something was done.
func inService(err error, service string) error {
	if err == nil {
		return nil
	}
	e := fumehood.Error{Op: "prepare image", Class: fumehood.ErrInfrastructure, Err: err}
	var known *fumehood.Error
	switch {
	case errors.As(err, &known):
		e = *known
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Class = fumehood.ErrCancelled
	}
	e.Service = cmp.Or(e.Service, service)
	return &e
}

// isFor says whether an image is for a platform; "" is any.
func isFor(image engine.Image, platform string) bool {
	if platform == "" {
		return true
	}
	arch, err := engine.PlatformArch(platform)
	return err == nil && image.Arch == arch
}

// checkArch compares what an image is for with what the daemon runs, or with what the service asks for, which the
// daemon's machine may emulate.
func (p *Provider) checkArch(s compose.Source, image engine.Image) error {
	arch := p.server.Arch
	if s.Platform != "" {
		var err error
		if arch, err = engine.PlatformArch(s.Platform); err != nil {
			return inService(err, s.Service)
		}
	}
	if image.Arch == arch || image.Arch == "" {
		return nil
	}
	return &fumehood.Error{
		Op: "start service", Service: s.Service, Class: fumehood.ErrConfig,
		Err:  fmt.Errorf("its image %s is for %s/%s, wanted is %s/%s", cmp.Or(s.Image, image.ID), image.OS, image.Arch, image.OS, arch),
		Hint: fmt.Sprintf("use an image for %s; or say platform: %s/%s, where the daemon's machine can emulate that", arch, image.OS, image.Arch),
	}
}

// buildAll builds what has to be built, each after what it is built on.
func (p *Provider) buildAll(ctx context.Context, plan *imagePlan, prebuilt bool) error {
	for left := plan.builds; len(left) > 0; {
		var ready, later []*imageBuild
		for _, b := range left {
			if b.isReady() {
				ready = append(ready, b)
			} else {
				later = append(later, b)
			}
		}
		if ready == nil {
			return &fumehood.Error{Op: "build image", Service: left[0].source.Service, Class: fumehood.ErrConfig, Err: errors.New("it is built on what is built on it")}
		}
		err := together(ctx, len(ready), func(ctx context.Context, i int) error {
			return inService(p.build(ctx, plan, ready[i], prebuilt), ready[i].source.Service)
		})
		if err != nil {
			return err
		}
		left = later
	}
	return nil
}

// basesOf are the images that a build uses, by their references; nil where one is missing.
func (plan *imagePlan) basesOf(b *imageBuild) map[string]engine.Image {
	bases := map[string]engine.Image{}
	for ref, w := range b.bases {
		bases[ref] = plan.have[w]
	}
	for ref, on := range b.on {
		bases[ref] = on.image
	}
	for _, image := range bases {
		if image.ID == "" {
			return nil
		}
	}
	return bases
}
