package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Store is the images of an engine.
type Store interface {
	// Arch returns the architecture of images that need no emulation, as in GOARCH.
	Arch(ctx context.Context) (string, error)
	// Find returns an image; false if the store has none of that name. It asks no registry.
	Find(ctx context.Context, ref string) (Image, bool, error)
	// Fetch gets an image from where its name says, whether or not the store has it. platform has the form "linux/arm64";
	// empty means the store's. An overloaded registry is an ErrBusy.
	Fetch(ctx context.Context, ref, platform string) error
}

// Builder builds images in a Store.
type Builder interface {
	// Accepts reports whether BuildKit builds a Dockerfile. The error is an ErrUnsupported if the builder cannot build it.
	Accepts(ctx context.Context, s Source, d Dockerfile) (buildKit bool, err error)
	// FindBuilt returns the image of an order that was built before; false if there is none.
	FindBuilt(ctx context.Context, o Order) (Image, bool, error)
	// Build builds the image of an order. tree is the context.
	Build(ctx context.Context, o Order, tree *Tree) error
}

// Preparer makes sure that a store has the images of sandboxes. It may be used concurrently: callers that need the same
// image wait for one pull or build.
type Preparer struct {
	Store    Store
	Builder  Builder                                // nil if no source has a build, or to plan only
	Builtin  func(ref string) (Source, bool, error) // the build of a built-in image; false for the name of another image
	Logger   *slog.Logger                           // receives what is unsafe and allowed, and retries
	Progress func(provider.Progress)                // is called for each step
	Waits    []time.Duration                        // the pauses before retries when a registry is busy or broken

	pulls  Flights // by image and platform
	builds Flights // by what is built
}

// Waits are the usual pauses before retries when a registry is busy or broken.
var Waits = []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second, 20 * time.Second}

// Prepare makes sure that the store has the images of all services of a project, and returns them by service. It first
// pulls all missing images, including base images of builds. Then it builds. If an image is missing that may not be
// pulled or built, Prepare fails before it pulls anything, and the error lists all such images.
func (p *Preparer) Prepare(ctx context.Context, sources []Source, opts *fumehood.Compose, preparing provider.PrepareOptions) (map[string]Image, error) {
	sources = withOptions(sources, opts, preparing)
	arch, err := p.Store.Arch(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := p.plan(ctx, arch, sources)
	if err == nil && preparing.BuildOnly { // also built-in images, and those of another service's build
		sources = slices.DeleteFunc(sources, func(s Source) bool { return plan.services[s.Service].build == nil })
		plan, err = p.plan(ctx, arch, sources)
	}
	if err != nil {
		return nil, err
	}
	missing, err := p.find(ctx, plan, opts.Prebuilt)
	if err == nil && !opts.Prebuilt {
		err = missingError(missing, "pull or build them, or leave out pull_policy: never and x-local")
	}
	if err == nil && !opts.Prebuilt {
		err = WithLimit(ctx, "pull", opts.PullTimeout, func(ctx context.Context) error { return p.fetchAll(ctx, plan) })
	}
	if err == nil {
		err = WithLimit(ctx, "build", opts.BuildTimeout, func(ctx context.Context) error { return p.buildAll(ctx, plan, opts.Prebuilt) })
	}
	if err == nil {
		for _, n := range plan.builds {
			if s := n.build.source; n.image.ID == "" {
				missing = append(missing, fmt.Sprintf("build of %s (%s)", cmp.Or(s.Build.Context, "its Dockerfile"), s.Service))
			}
		}
		err = missingError(missing, "start the project once where images may be pulled and built")
	}
	if err != nil {
		return nil, err
	}
	images := map[string]Image{}
	for _, s := range sources {
		images[s.Service] = plan.services[s.Service].image
		if err := s.CheckArch(images[s.Service], arch); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// Check reads the Dockerfiles that a project's images are built from. It returns the error that Prepare would return before it
// asks a store or a builder.
func Check(ctx context.Context, arch string, sources []Source, opts *fumehood.Compose) error {
	p := Preparer{Logger: slog.New(slog.DiscardHandler)} // what is allowed is logged when it is built
	_, err := p.plan(ctx, arch, withOptions(sources, opts, provider.PrepareOptions{}))
	return err
}

// withOptions returns sources with the options of their project and of their preparation.
func withOptions(sources []Source, opts *fumehood.Compose, preparing provider.PrepareOptions) []Source {
	sources = slices.Clone(sources)
	for i := range sources {
		sources[i].AllowUnsafe, sources[i].HostEnv, sources[i].Exclude = opts.AllowUnsafe, opts.HostEnv, preparing.Exclude
	}
	return sources
}

// Get makes sure that the store has one image, and returns it. If the store already has it, no request is sent to a
// registry. A built-in image is built if it is missing or out of date.
func (p *Preparer) Get(ctx context.Context, ref string) (Image, error) {
	s, is, err := p.builtin(ref)
	if err != nil {
		return Image{}, err
	}
	if is {
		built, err := p.Prepare(ctx, []Source{s}, &fumehood.Compose{}, provider.PrepareOptions{})
		return built[s.Service], err
	}
	return p.fetch(ctx, ref, "", false)
}

func (p *Preparer) builtin(ref string) (Source, bool, error) {
	if p.Builtin == nil {
		return Source{}, false, nil
	}
	return p.Builtin(ref)
}

// atOnce is how many images of a project are pulled, or built, at once.
const atOnce = 8

// find looks up the images that are not built. It returns the missing ones that may not be pulled.
func (p *Preparer) find(ctx context.Context, plan *plan, prebuilt bool) (missing []string, err error) {
	for w, n := range plan.pulls {
		image, found, err := p.Store.Find(ctx, w.ref)
		if err != nil {
			return nil, err
		}
		if found && image.isFor(w.platform) {
			n.image = image
		} else if prebuilt || w.pull == PullNever {
			missing = append(missing, missingImage(w.ref, n.users))
		}
	}
	return missing, nil
}

// fetchAll pulls the missing images, and those that are always pulled. The first failure cancels the other pulls.
func (p *Preparer) fetchAll(ctx context.Context, plan *plan) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for w, n := range plan.pulls {
		always := w.pull == PullAlways
		if n.image.ID != "" && (!always || time.Since(n.image.Tagged) <= w.age) {
			continue
		}
		group.Go(func() (err error) {
			n.image, err = p.fetch(ctx, w.ref, w.platform, always)
			return InService(err, n.users[0])
		})
	}
	return group.Wait()
}

// fetch fetches an image, once for all concurrent callers. It retries if a registry is busy or broken. If always is set,
// it asks the registry even if the store has the image by now.
func (p *Preparer) fetch(ctx context.Context, ref, platform string, always bool) (Image, error) {
	return Share(ctx, &p.pulls, fmt.Sprintf("%s %s %t", ref, platform, always), func(ctx context.Context) (Image, error) {
		image, found, err := p.Store.Find(ctx, ref)
		if err != nil || found && !always && image.isFor(platform) {
			return image, err
		}
		err = WithLimit(ctx, "pull", 0, func(ctx context.Context) error {
			return p.patiently(ctx, func() error { return p.Store.Fetch(ctx, ref, platform) })
		})
		if err != nil {
			return Image{}, err
		}
		image, found, err = p.Store.Find(ctx, ref)
		if err == nil && !found {
			err = &fumehood.Error{Op: "pull image " + ref, Class: fumehood.ErrInfrastructure, Err: errors.New("image missing after a successful pull")}
		}
		return image, err
	})
}

// InService adds the service to an error.
func InService(err error, service string) error {
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

// CheckArch compares the architecture of a service's image with the store's. If the service sets a platform, which the
// store's machine may emulate, it compares with that instead.
func (s Source) CheckArch(image Image, arch string) (err error) {
	if s.Platform != "" {
		if arch, err = platformArch(s.Platform); err != nil {
			return InService(err, s.Service)
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
