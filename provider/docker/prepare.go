package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// prepared is the image of a service.
type prepared struct {
	engine.Image
	Ref string // the name to start it by: the reference, or the tag of a built image
}

// prepare makes sure that the daemon has the images of all services of a project, and returns them by service. It first
// pulls all missing images, including base images of builds. Then it builds. If an image is missing that may not be
// pulled or built, prepare fails before it pulls anything, and the error lists all such images.
func (p *Provider) prepare(ctx context.Context, sources []image.Source, opts *fumehood.Compose, preparing provider.PrepareOptions) (map[string]prepared, error) {
	sources = slices.Clone(sources)
	for i := range sources {
		sources[i].AllowUnsafe, sources[i].HostEnv, sources[i].Exclude = opts.AllowUnsafe, opts.HostEnv, preparing.Exclude
	}
	server, err := p.engine.Server(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := p.planImages(server, sources)
	if err == nil && preparing.BuildOnly { // also built-in images, and those of another service's build
		sources = slices.DeleteFunc(sources, func(s image.Source) bool { return plan.services[s.Service].build == nil })
		plan, err = p.planImages(server, sources)
	}
	if err != nil {
		return nil, err
	}
	missing, err := p.find(ctx, plan, opts.Prebuilt)
	if err == nil && !opts.Prebuilt {
		err = image.Missing(missing, "pull or build them, or leave out pull_policy: never and x-local")
	}
	if err == nil && !opts.Prebuilt {
		err = image.Limited(ctx, "pull", opts.PullTimeout, func(ctx context.Context) error { return p.pullAll(ctx, plan) })
	}
	if err == nil {
		err = image.Limited(ctx, "build", opts.BuildTimeout, func(ctx context.Context) error { return p.buildAll(ctx, plan, opts.Prebuilt) })
	}
	if err == nil {
		for _, n := range plan.builds {
			if s := n.build.source; n.image.ID == "" {
				missing = append(missing, fmt.Sprintf("build of %s (%s)", cmp.Or(s.Build.Context, "its Dockerfile"), s.Service))
			}
		}
		err = image.Missing(missing, "start the project once where images may be pulled and built")
	}
	if err != nil {
		return nil, err
	}
	images := map[string]prepared{}
	for _, s := range sources {
		images[s.Service] = plan.services[s.Service].image
		if err := p.checkArch(ctx, s, images[s.Service].Image); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// findPrepared returns the images of a project's services that were prepared before. ids has their IDs by service.
func (p *Provider) findPrepared(ctx context.Context, sources []image.Source, ids map[string]string) (map[string]prepared, error) {
	images := map[string]prepared{}
	for _, s := range sources {
		image, err := p.findID(ctx, s.Service, ids[s.Service])
		if err == nil {
			err = p.checkArch(ctx, s, image)
		}
		if err != nil {
			return nil, err
		}
		images[s.Service] = prepared{image, image.ID}
	}
	return images, nil
}

// findID returns the image of a service that was prepared before.
func (p *Provider) findID(ctx context.Context, service, id string) (engine.Image, error) {
	fail := func(class error, hint, format string, a ...any) (engine.Image, error) {
		return engine.Image{}, &fumehood.Error{Op: "find image", Service: service, Class: class, Err: fmt.Errorf(format, a...), Hint: hint}
	}
	if id == "" {
		return fail(fumehood.ErrConfig, "do not change the project while its sandboxes start", "no image was prepared for this service")
	}
	image, found, err := p.engine.Image(ctx, id)
	if err == nil && !found {
		return fail(fumehood.ErrInfrastructure, "do not remove images while sandboxes start from them", "prepared image %s no longer exists", id)
	}
	return image, err
}

// atOnce is how many images of a project are pulled, or built, at once.
const atOnce = 8

// imagePlan describes where the images of a project come from.
type imagePlan struct {
	server   engine.Server
	services map[string]*node
	pulls    map[want]*node
	builds   []*node          // in build order: each after its base images
	names    map[string]*node // the builds, by the names of their images
}

// node is an image that a project needs. It is either pulled or built.
type node struct {
	image prepared      // no ID while the daemon does not have it
	users []string      // the services that need it
	build *imageBuild   // nil if the image is pulled
	built chan struct{} // closed when the build has ended; nil before the builds begin
}

// want identifies an image that is not built.
type want struct {
	ref, platform string
	pull          string
	age           time.Duration
}

// planImages reads the Dockerfiles and plans where images come from. It does not contact the daemon.
func (p *Provider) planImages(server engine.Server, sources []image.Source) (*imagePlan, error) {
	plan := &imagePlan{server: server, services: map[string]*node{}, pulls: map[want]*node{}, names: map[string]*node{}}
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

func (p *Provider) planBuild(plan *imagePlan, s image.Source) (*node, error) {
	b, err := p.newImageBuild(plan.server, s)
	if err != nil {
		return nil, inService(err, s.Service)
	}
	n := &node{build: b}
	for _, name := range b.names {
		plan.names[name] = n
	}
	return n, nil
}

// planImage returns the node of a reference: another build of the project, a built-in image, or an image to pull. user
// is the build that refers to it; if its image has the same name as its base, the base is pulled.
func (p *Provider) planImage(plan *imagePlan, w want, service string, user *node) (*node, error) {
	n := plan.names[familiar(w.ref)]
	if n != nil && n != user {
		return n, nil
	}
	s, is, err := p.builtin(w.ref)
	switch {
	case err != nil:
		return nil, inService(err, service)
	case is && n == nil:
		return p.planBuild(plan, s)
	}
	if n = plan.pulls[w]; n == nil {
		n = &node{}
		plan.pulls[w] = n
	}
	n.users = append(n.users, service)
	return n, nil
}

// planBases adds a build's base images to the plan, and then the build itself.
func (p *Provider) planBases(plan *imagePlan, n *node) error {
	b := n.build
	if b == nil || slices.Contains(plan.builds, n) {
		return nil
	}
	if b.on != nil {
		return &fumehood.Error{Op: "build image", Service: b.source.Service, Class: fumehood.ErrConfig, Err: errors.New("cyclic image dependency")}
	}
	b.on = map[string]*node{}
	for _, ref := range b.dockerfile.Bases {
		w := want{ref: ref, platform: b.source.Platform, pull: image.PullMissing}
		if b.source.Build.Pull {
			w.pull = image.PullAlways
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

// familiar returns a reference as the Engine lists it. It returns ref unchanged if it is not a valid reference.
func familiar(ref string) string {
	if tag, err := engine.Tag(ref); err == nil {
		return tag
	}
	return ref
}

// find looks up the images that are not built. It returns the missing ones that may not be pulled.
func (p *Provider) find(ctx context.Context, plan *imagePlan, prebuilt bool) (missing []string, err error) {
	for w, n := range plan.pulls {
		img, found, err := p.engine.Image(ctx, w.ref)
		if err != nil {
			return nil, err
		}
		if found && isFor(img, w.platform) {
			n.image = prepared{img, w.ref}
		} else if prebuilt || w.pull == image.PullNever {
			missing = append(missing, image.MissingImage(w.ref, n.users))
		}
	}
	return missing, nil
}

// pullAll pulls the missing images, and those that are always pulled. The first failure cancels the other pulls.
func (p *Provider) pullAll(ctx context.Context, plan *imagePlan) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for w, n := range plan.pulls {
		always := w.pull == image.PullAlways
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

// buildAll builds images, each after its base images. The first failure cancels the other builds.
func (p *Provider) buildAll(ctx context.Context, plan *imagePlan, prebuilt bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce) // no deadlock: each waits only for builds that were started before it
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

// inService adds the service to an error.
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
		e.Class = fumehood.ErrCanceled
	}
	e.Service = cmp.Or(e.Service, service)
	return &e
}

// isFor reports whether an image is for a platform; "" matches any image.
func isFor(image engine.Image, platform string) bool {
	if platform == "" {
		return true
	}
	arch, err := engine.PlatformArch(platform)
	return err == nil && image.Arch == arch
}

// checkArch compares the architecture of an image with the daemon's. If the service sets a platform, which the daemon's
// machine may emulate, it compares with that instead.
func (p *Provider) checkArch(ctx context.Context, s image.Source, image engine.Image) error {
	server, err := p.engine.Server(ctx)
	if err != nil {
		return err
	}
	arch := server.Arch
	if s.Platform != "" {
		if arch, err = engine.PlatformArch(s.Platform); err != nil {
			return inService(err, s.Service)
		}
	}
	if image.Arch == arch || image.Arch == "" {
		return nil
	}
	return &fumehood.Error{
		Op: "start service", Service: s.Service, Class: fumehood.ErrConfig,
		Err:  fmt.Errorf("image %s is for %s/%s, need %s/%s", cmp.Or(s.Image, image.ID), image.OS, image.Arch, image.OS, arch),
		Hint: fmt.Sprintf("use an image for %s; or set platform: %s/%s if the daemon's machine can emulate that", arch, image.OS, image.Arch),
	}
}
