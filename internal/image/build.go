package image

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// build is the build of a service's image.
type build struct {
	source     Source
	names      []string // the project's names for the image; the store only has one derived from the content
	dockerfile Dockerfile
	buildKit   bool
	on         map[string]*node // base images by reference; nil until they are planned
}

// Order is what a builder is asked for.
type Order struct {
	// Build is that of the source, but Tags are the image's names in the store, Dockerfile is a path in the context, and
	// Inline is a Dockerfile that the context does not have; steps do not see it.
	Build
	Platform string // "linux/arm64"; empty means the builder's
	Text     string // the Dockerfile, wherever it is
	BuildKit bool   // selects BuildKit as the builder, where there is another one
	Inputs   string // the hash of everything that the image is made of
	// Bases are the names by which the store or a registry has base images, by reference. They are in Text.
	Bases map[string]string
	// Memory, in bytes, and CPUs limit each step of the Engine's own builder.
	Memory int64
	CPUs   float64
	// Mask hides values in the names and the output of steps, which it gets before they are cut. Nil hides nothing.
	Mask func(string) string
	// Report is called with each step when it begins. Nil disables reports.
	Report func(step string)
}

// newBuild reads a build's Dockerfile.
func (p *Preparer) newBuild(ctx context.Context, arch string, s Source) (*build, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	b := &build{source: s, names: names}
	if b.dockerfile, err = s.ReadDockerfile("linux/" + arch); err != nil {
		return nil, err
	}
	if err = p.mayBuild(s, b.dockerfile.Check(s.Build.Args)); err != nil {
		return nil, err
	}
	if p.Builder != nil {
		b.buildKit, err = p.Builder.Accepts(ctx, s, b.dockerfile)
	}
	return b, err
}

// mayBuild returns an error if unsafe is not nil, unless the user allows unsafe builds. It logs what is allowed.
func (p *Preparer) mayBuild(s Source, unsafe error) error {
	if unsafe == nil {
		return nil
	}
	if s.AllowUnsafe {
		p.Logger.Warn("unsafe, allowed", "service", s.Service, "dockerfile", s.Build.Dockerfile, "why", Mask(s.HostEnv, unsafe.Error()))
		return nil
	}
	return &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrFile, Err: unsafe, Hint: "or allow it (--allow-unsafe)"}
}

// buildRecipe is increased when the same inputs shall result in a different image.
const buildRecipe = 2

// inputs returns the hash of everything that an image is made of. Of secrets it includes only the IDs: as with the
// builders, a new value does not cause a new build.
func (b *build) inputs(bases map[string]string, context string) string {
	build := b.source.Build
	return HashOf(struct {
		Recipe                    int
		Bases                     map[string]string
		Context, Dockerfile       string
		Args, Labels              map[string]string
		Target, Network, Platform string
		ExtraHosts, Secrets       []string
		Ulimits                   []Ulimit
		ShmSize                   int64
		Scope                     string `json:",omitempty"`
	}{
		buildRecipe, bases, context, b.dockerfile.Text, build.Args, build.Labels, build.Target, build.Network, b.source.Platform,
		build.ExtraHosts, build.SecretIDs(), build.Ulimits, build.ShmSize, b.scope(),
	})
}

// scope returns the namespace of the caches that build steps mount; empty if none does. The results of such steps are
// not shared with other projects. ONBUILD instructions of a base image may also mount caches.
func (b *build) scope() string {
	caches := b.dockerfile.Caches
	for _, on := range b.on {
		caches = caches || len(on.image.OnBuild) > 0
	}
	if !b.buildKit || !caches {
		return ""
	}
	return Scope(b.source.Project, b.source.Build.Context)
}

// ScopedArgs returns the arguments of a build with a namespace for its caches. If the arguments already have one, which
// must have been allowed, it stays. Every build with BuildKit gets a namespace, because ONBUILD instructions of a base
// image may mount caches too.
func ScopedArgs(args map[string]string, scope string) map[string]string {
	scoped := map[string]string{ScopeArg: scope}
	maps.Copy(scoped, args)
	return scoped
}

// BuiltPrefix is the prefix of the names of built images. The beginning of the hash of their inputs follows, so an
// image of that name need not be built again.
const (
	BuiltPrefix = "fumehood-build:"
	builtHash   = 20 // digits of the hash
)

// buildAll builds images, each after its base images. The first failure cancels the other builds.
func (p *Preparer) buildAll(ctx context.Context, plan *plan, prebuilt bool) error {
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
			return InService(cmp.Or(err, fumehood.Cause(ctx)), n.build.source.Service)
		})
	}
	return group.Wait()
}

// build makes sure that the image exists. Concurrent callers that need the same image share one build, also across
// processes of the same user. If prebuilt is set, build does not build anything. The result has no ID if the image, or
// one of its base images, is missing.
func (p *Preparer) build(ctx context.Context, b *build, prebuilt bool) (Image, error) {
	bases := map[string]string{}
	for ref, on := range b.on {
		if on.image.ID == "" {
			return Image{}, nil
		}
		bases[ref] = on.image.ID
		if err := p.mayBuild(b.source, CheckTriggers(ref, on.image.OnBuild)); err != nil {
			return Image{}, err
		}
	}
	return Share(ctx, &p.builds, HashOf([]any{b.source, bases, prebuilt}), func(ctx context.Context) (Image, error) {
		return p.ensureBuilt(ctx, b, bases, prebuilt)
	})
}

func (p *Preparer) ensureBuilt(ctx context.Context, b *build, bases map[string]string, prebuilt bool) (Image, error) {
	tree, err := b.source.BuildContext(ctx, b.dockerfile)
	if err != nil {
		return Image{}, err
	}
	o := Order{Build: *b.source.Build, Platform: b.source.Platform, Inputs: b.inputs(bases, tree.Hash()), BuildKit: b.buildKit}
	o.Tags = []string{BuiltPrefix + o.Inputs[:builtHash]}
	if b.source.Builtin { // the project's own names are not included, because other images may have them
		o.Tags = append(o.Tags, b.names...)
	}
	if image, found, err := p.Builder.FindBuilt(ctx, o); err != nil || found || prebuilt {
		return image, err
	}
	unlock, err := p.lockBuild(ctx, o.Inputs)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if image, found, err := p.Builder.FindBuilt(ctx, o); err != nil || found {
		return image, err
	}
	if err := b.fill(&o, tree); err != nil {
		return Image{}, err
	}
	o.Mask = func(text string) string { return Mask(b.source.HostEnv, text) }
	o.Report = func(step string) { p.Progress(provider.Progress{Image: b.title(), Status: step, Build: true}) }
	if err := p.patiently(ctx, func() error { return p.Builder.Build(ctx, o, tree) }); err != nil {
		return Image{}, err
	}
	image, found, err := p.Builder.FindBuilt(ctx, o)
	if err == nil && !found {
		err = &fumehood.Error{Op: "build image", Class: fumehood.ErrInfrastructure, Err: errors.New("image missing after a successful build")}
	}
	return image, err
}

// fill sets the order's Dockerfile, arguments and secrets.
func (b *build) fill(o *Order, tree *Tree) error {
	if b.buildKit {
		o.Args = ScopedArgs(o.Args, Scope(b.source.Project, o.Context))
	}
	o.Secrets = nil
	for _, s := range b.source.Build.Secrets {
		content, err := s.Read()
		if err != nil {
			return &fumehood.Error{Op: "read secret " + s.ID, Class: fumehood.ErrConfig, Err: err}
		}
		o.Secrets = append(o.Secrets, Secret{ID: s.ID, Content: string(content)})
	}
	o.Bases = map[string]string{}
	for ref, on := range b.on {
		if on.build != nil { // an image that was built here has another name in the store
			o.Bases[ref] = on.image.Ref
		} else if on.image.Pinned != "" {
			o.Bases[ref] = on.image.Pinned
		}
	}
	var err error
	if o.Text, err = b.dockerfile.Rename(o.Bases); err != nil {
		return &fumehood.Error{Op: "read", Path: o.Dockerfile, Class: fumehood.ErrFile, Err: err}
	}
	o.Dockerfile, o.Inline = b.dockerfile.Path, ""
	if len(o.Bases) > 0 || !tree.HasDockerfile() {
		o.Inline = o.Text
	}
	return nil
}

// title names the build in progress reports: PROJECT/SERVICE or PROJECT/DOCKERFILE, by the name of the project's
// folder, or the name of a built-in image.
func (b *build) title() string {
	s := b.source
	if s.Project == "" {
		return s.Service
	}
	name := s.Service
	if name == defaultService && filepath.IsAbs(s.Build.Dockerfile) { // a project that consists of a Dockerfile
		name = filepath.Base(s.Build.Dockerfile)
	}
	return filepath.Base(s.Project) + "/" + name
}

// defaultService is the service of a project that consists of a Dockerfile.
const defaultService = "default"

// lockBuild prevents other processes of this user from building the same image. If locking fails, the image may be
// built twice, which only wastes time.
func (p *Preparer) lockBuild(ctx context.Context, inputs string) (unlock func(), err error) {
	dir, err := owner.StateDir("builds")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	lock := flock.New(filepath.Join(dir, inputs[:builtHash]+".lock"))
	if err == nil {
		_, err = lock.TryLockContext(ctx, 100*time.Millisecond)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		p.Logger.Debug("a build is not locked", "error", err)
		return func() {}, nil
	}
	return func() {
		if runtime.GOOS != "windows" {
			_ = os.Remove(lock.Path()) // safe: processes that wait for it, or create it again, look for the image first
		}
		_ = lock.Unlock()
	}, nil
}

// patiently calls f and retries while a registry is busy or broken. The pauses grow. A random jitter of up to half a
// pause is added, so that clients that failed together do not retry together.
func (p *Preparer) patiently(ctx context.Context, f func() error) error {
	for _, wait := range p.Waits {
		err := f()
		if !errors.Is(err, ErrBusy) {
			return err
		}
		wait += rand.N(wait / 2)
		p.Logger.Warn("registry busy or broken: retrying", "in", wait.Round(100*time.Millisecond), "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
	return f()
}
