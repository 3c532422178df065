package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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
		for _, n := range plan.builds {
			if s := n.build.source; n.image.ID == "" {
				missing = append(missing, fmt.Sprintf("what is built of %s (%s)", cmp.Or(s.Build.Context, "its Dockerfile"), s.Service))
			}
		}
		err = missingImages(missing, "start the project once where images may be pulled and built")
	}
	if err != nil {
		return nil, err
	}
	images := map[string]prepared{}
	for _, s := range sources {
		images[s.Service] = plan.services[s.Service].image
		if err := p.checkArch(s, images[s.Service].Image); err != nil {
			return nil, err
		}
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

// atOnce is how many images of a project are pulled, or built, at the same time.
const atOnce = 8

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
	services map[string]*node
	pulls    map[want]*node
	builds   []*node          // each after those that it is built on
	names    map[string]*node // what is built, by the names that it gets
}

// node is an image that a project needs: one that is pulled, or one that is built.
type node struct {
	image prepared      // without an ID while the daemon does not have it
	users []string      // the services that need it
	build *imageBuild   // nil for one that is pulled
	built chan struct{} // closed when its build is over, and nil before the builds begin
}

// want is an image that is not built.
type want struct {
	ref, platform string
	pull          string
	age           time.Duration
}

// planImages reads the Dockerfiles and asks no daemon.
func (p *Provider) planImages(sources []compose.Source) (*imagePlan, error) {
	plan := &imagePlan{services: map[string]*node{}, pulls: map[want]*node{}, names: map[string]*node{}}
	for _, s := range sources {
		if s.Build != nil {
			n, err := p.planBuild(plan, s)
			if err != nil {
				return nil, err
			}
			plan.services[s.Service] = n
		}
	}
	for _, s := range sources {
		n, err := plan.services[s.Service], error(nil)
		if n == nil {
			n, err = p.planImage(plan, want{s.Image, s.Platform, s.Pull, s.Age}, s.Service, nil)
		}
		if err == nil {
			err = p.planBases(plan, n)
		}
		if err != nil {
			return nil, err
		}
		plan.services[s.Service] = n
	}
	return plan, nil
}

func (p *Provider) planBuild(plan *imagePlan, s compose.Source) (*node, error) {
	b, err := p.newImageBuild(s)
	if err != nil {
		return nil, inService(err, s.Service)
	}
	n := &node{build: b}
	for _, name := range b.names {
		plan.names[name] = n
	}
	return n, nil
}

// planImage returns the image of a reference: that of another build here, one that ships with the library, or one that is
// pulled. A build that gets the name of its own base (user) is built on the pulled image.
func (p *Provider) planImage(plan *imagePlan, w want, service string, user *node) (*node, error) {
	n := plan.names[familiar(w.ref)]
	if n != nil && n != user {
		return n, nil
	}
	if s, is := p.builtin(w.ref); is && n == nil {
		return p.planBuild(plan, s)
	}
	if n = plan.pulls[w]; n == nil {
		n = &node{}
		plan.pulls[w] = n
	}
	n.users = append(n.users, service)
	return n, nil
}

// planBases adds what a build is built on to the plan, and then the build itself.
func (p *Provider) planBases(plan *imagePlan, n *node) error {
	b := n.build
	if b == nil || slices.Contains(plan.builds, n) {
		return nil
	}
	if b.on != nil {
		return &fumehood.Error{Op: "build image", Service: b.source.Service, Class: fumehood.ErrConfig, Err: errors.New("it is built on what is built on it")}
	}
	b.on = map[string]*node{}
	for _, ref := range b.dockerfile.Bases {
		w := want{ref: ref, platform: b.source.Platform, pull: compose.PullMissing}
		if b.source.Build.Pull {
			w.pull = compose.PullAlways
		}
		on, err := p.planImage(plan, w, b.source.Service, n)
		if err == nil {
			err = p.planBases(plan, on)
		}
		if err != nil {
			return err
		}
		b.on[ref] = on
	}
	plan.builds = append(plan.builds, n)
	return nil
}

// familiar is a reference as the Engine lists it, or itself where it is none.
func familiar(ref string) string {
	if tag, err := engine.Tag(ref); err == nil {
		return tag
	}
	return ref
}

// find looks up what is not built, and tells what of it is missing and may not be pulled.
func (p *Provider) find(ctx context.Context, plan *imagePlan, prebuilt bool) (missing []string, err error) {
	for w, n := range plan.pulls {
		image, found, err := p.engine.Image(ctx, w.ref)
		if err != nil {
			return nil, err
		}
		if found && isFor(image, w.platform) {
			n.image = prepared{image, w.ref}
		} else if prebuilt || w.pull == compose.PullNever {
			users := slices.Compact(slices.Sorted(slices.Values(n.users)))
			missing = append(missing, fmt.Sprintf("%s (%s)", w.ref, strings.Join(users, ", ")))
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

// pullAll pulls what is missing, and what is always to be pulled. The first failure ends the other pulls.
func (p *Provider) pullAll(ctx context.Context, plan *imagePlan) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for w, n := range plan.pulls {
		always := w.pull == compose.PullAlways
		if n.image.ID != "" && (!always || time.Since(n.image.Tagged) <= w.age) {
			continue
		}
		group.Go(func() error {
			image, err := p.pull(ctx, w.ref, w.platform, always)
			n.image = prepared{image, w.ref}
			return inService(err, n.users[0])
		})
	}
	return group.Wait()
}

// buildAll builds what has to be built, each after what it is built on. The first failure ends the other builds.
func (p *Provider) buildAll(ctx context.Context, plan *imagePlan, prebuilt bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce) // none waits for one that is not begun: those are before it
	for _, n := range plan.builds {
		n.built = make(chan struct{})
		group.Go(func() (err error) {
			defer close(n.built)
			for _, on := range n.build.on {
				if on.build != nil {
					<-on.built
				}
			}
			if ctx.Err() == nil {
				n.image, err = p.build(ctx, n.build, prebuilt)
			}
			return inService(cmp.Or(err, ctx.Err()), n.build.source.Service)
		})
	}
	return group.Wait()
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
