package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// imageBuild is the build of a service's image.
type imageBuild struct {
	source     image.Source
	names      []string // the project's names for the image; the daemon only has one derived from the content
	ours       bool     // a built-in image, which the daemon also has under its own name
	dockerfile image.Dockerfile
	buildKit   bool
	on         map[string]*node // base images by reference; nil until they are planned
}

// newImageBuild reads a build's Dockerfile.
func (p *Provider) newImageBuild(server engine.Server, s image.Source) (*imageBuild, error) {
	b := &imageBuild{source: s, ours: strings.HasPrefix(s.Service, builtinPrefix)} // a project's service cannot have such a name
	for _, name := range append([]string{s.Image}, s.Build.Tags...) {
		if name == "" {
			continue
		}
		tag, err := engine.Tag(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(b.names, tag) {
			b.names = append(b.names, tag)
		}
	}
	var err error
	if b.dockerfile, err = s.ReadDockerfile("linux/" + server.Arch); err != nil {
		return nil, err
	}
	if err = p.mayBuild(s, b.dockerfile.Check(s.Build.Args)); err != nil {
		return nil, err
	}
	b.buildKit, err = builderFor(b.dockerfile, len(s.Build.Secrets) > 0, server, p.opts.ClassicBuilder)
	return b, err
}

// mayBuild returns an error if unsafe is not nil, unless the user allows unsafe builds. It logs what is allowed.
func (p *Provider) mayBuild(s image.Source, unsafe error) error {
	if unsafe == nil {
		return nil
	}
	if s.AllowUnsafe {
		p.opts.Logger.Warn("unsafe, allowed", "service", s.Service, "dockerfile", s.Build.Dockerfile, "why", image.Mask(s.HostEnv, unsafe.Error()))
		return nil
	}
	return &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrFile, Err: unsafe, Hint: "or allow it (--allow-unsafe)"}
}

// heredocEngine is the first Engine version whose BuildKit supports heredocs.
const heredocEngine = "23.0"

// builderFor chooses the builder: BuildKit if the Engine has it. It returns an ErrUnsupported if the Dockerfile needs
// BuildKit and the Engine does not have it, or needs a newer one.
func builderFor(d image.Dockerfile, secrets bool, server engine.Server, classic bool) (buildKit bool, err error) {
	fail := func(hint, format string, a ...any) (bool, error) {
		return false, &fumehood.Error{Op: "build image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf(format, a...), Hint: hint}
	}
	if server.BuildKit && !classic {
		if d.Heredoc > 0 && d.Syntax == "" && engine.VersionLess(server.Version, heredocEngine) {
			return fail("begin the Dockerfile with the line `# syntax=docker/dockerfile:1`, or upgrade the Engine to "+heredocEngine,
				"line %d of the Dockerfile is a heredoc, which the BuildKit of Engine %s does not support", d.Heredoc, server.Version)
		}
		return true, nil
	}
	needs := d.Needs
	if d.Syntax != "" && !strings.HasPrefix(d.Syntax, "docker/dockerfile:") {
		needs = append(needs, "the syntax "+d.Syntax)
	}
	if secrets {
		needs = append(needs, "secrets")
	}
	if needs == nil {
		return false, nil
	}
	hint := "use a Docker Engine, which has BuildKit"
	if classic {
		hint = "allow BuildKit: do not set DOCKER_BUILDKIT=0"
	}
	return fail(hint, "the build needs BuildKit, which is not available: %s", strings.Join(needs, "; "))
}

// buildRecipe is increased when the same inputs shall result in a different image.
const buildRecipe = 2

// inputs returns the hash of everything that an image is made of. Of secrets it includes only the IDs: as with the
// builders, a new value does not cause a new build.
func (b *imageBuild) inputs(bases map[string]string, context string) string {
	build := b.source.Build
	return image.HashOf(struct {
		Recipe                    int
		Bases                     map[string]string
		Context, Dockerfile       string
		Args, Labels              map[string]string
		Target, Network, Platform string
		ExtraHosts, Secrets       []string
		Ulimits                   []image.Ulimit
		ShmSize                   int64
		Scope                     string `json:",omitempty"`
	}{
		buildRecipe, bases, context, b.dockerfile.Text, build.Args, build.Labels, build.Target, build.Network, b.source.Platform,
		build.ExtraHosts, build.SecretIDs(), build.Ulimits, build.ShmSize, b.scope(),
	})
}

// scope returns the namespace of the caches that build steps mount; empty if none does. The results of such steps are
// not shared with other projects. ONBUILD instructions of a base image may also mount caches.
func (b *imageBuild) scope() string {
	caches := b.dockerfile.Caches
	for _, on := range b.on {
		caches = caches || len(on.image.OnBuild) > 0
	}
	if !b.buildKit || !caches {
		return ""
	}
	return image.Scope(b.source.Project, b.source.Build.Context)
}

// scopedArgs returns the arguments of a build with a namespace for its caches. If the arguments already have one, which
// must have been allowed, it stays. Every build with BuildKit gets a namespace, because ONBUILD instructions of a base
// image may mount caches too.
func scopedArgs(args map[string]string, scope string) map[string]string {
	scoped := map[string]string{image.ScopeArg: scope}
	maps.Copy(scoped, args)
	return scoped
}

// builtPrefix is the prefix of the names of built images. The beginning of the hash of their inputs follows, so an
// image of that name need not be built again.
const (
	builtPrefix = "fumehood-build:"
	builtHash   = 20 // digits of the hash
)

// build makes sure that the image exists. Concurrent callers that need the same image share one build, also across
// processes of the same user. If prebuilt is set, build does not build anything. The result has no ID if the image, or
// one of its base images, is missing.
func (p *Provider) build(ctx context.Context, b *imageBuild, prebuilt bool) (prepared, error) {
	bases := map[string]string{}
	for ref, on := range b.on {
		if on.image.ID == "" {
			return prepared{}, nil
		}
		bases[ref] = on.image.ID
		if err := p.mayBuild(b.source, image.CheckTriggers(ref, on.image.OnBuild)); err != nil {
			return prepared{}, err
		}
	}
	return shared(ctx, &p.builds, image.HashOf([]any{b.source, bases, prebuilt}), func(ctx context.Context) (prepared, error) {
		return p.ensureBuilt(ctx, b, bases, prebuilt)
	})
}

func (p *Provider) ensureBuilt(ctx context.Context, b *imageBuild, bases map[string]string, prebuilt bool) (prepared, error) {
	tree, err := b.source.BuildContext(ctx, b.dockerfile)
	if err != nil {
		return prepared{}, err
	}
	inputs := b.inputs(bases, tree.Hash())
	if image, err := p.findBuilt(ctx, b, inputs); err != nil || image.ID != "" || prebuilt {
		return image, err
	}
	unlock, err := p.lockBuild(ctx, inputs)
	if err != nil {
		return prepared{}, err
	}
	defer unlock()
	if image, err := p.findBuilt(ctx, b, inputs); err != nil || image.ID != "" {
		return image, err
	}
	if err := p.patiently(ctx, func() error { return p.runBuild(ctx, b, inputs, tree) }); err != nil {
		return prepared{}, err
	}
	image, err := p.findBuilt(ctx, b, inputs)
	if err == nil && image.ID == "" {
		err = &fumehood.Error{Op: "build image", Class: fumehood.ErrInfrastructure, Err: errors.New("image missing after a successful build")}
	}
	return image, err
}

// findBuilt looks up the image of the inputs. The result has no ID if the image does not exist. A built-in image that
// lacks its name is tagged with it.
func (p *Provider) findBuilt(ctx context.Context, b *imageBuild, inputs string) (prepared, error) {
	tags := b.tags(inputs)
	image, found, err := p.engine.Image(ctx, tags[0])
	if err != nil || !found || markOf(image.Labels).Inputs != inputs {
		return prepared{}, err
	}
	for _, name := range tags {
		if !slices.Contains(image.Tags, name) {
			if err := p.engine.Tag(ctx, image.ID, name); err != nil {
				return prepared{}, err
			}
		}
	}
	return prepared{image, tags[0]}, nil
}

// title names the build in progress reports: PROJECT/SERVICE or PROJECT/DOCKERFILE, by the name of the project's
// folder, or the name of a built-in image.
func (b *imageBuild) title() string {
	s := b.source
	if s.Project == "" {
		return s.Service
	}
	name := s.Service
	if name == compose.DefaultService && filepath.IsAbs(s.Build.Dockerfile) { // compose.Load makes such a project of a Dockerfile
		name = filepath.Base(s.Build.Dockerfile)
	}
	return filepath.Base(s.Project) + "/" + name
}

// tags returns the image's names in the daemon. The first is derived from its content. The project's own names are not
// included, because other images may have them.
func (b *imageBuild) tags(inputs string) []string {
	tags := []string{builtPrefix + inputs[:builtHash]}
	if b.ours {
		tags = append(tags, b.names...)
	}
	return tags
}

// runBuild has the Engine build the image.
func (p *Provider) runBuild(ctx context.Context, b *imageBuild, inputs string, tree *image.Tree) error {
	of := b.source.Build
	build := engine.Build{
		Tags: b.tags(inputs), Dockerfile: b.dockerfile.Path, Args: of.Args, Network: of.Network, Target: of.Target,
		Platform: b.source.Platform, NoCache: of.NoCache, CacheFrom: of.CacheFrom, ExtraHosts: of.ExtraHosts, ShmSize: of.ShmSize,
		BuildKit: b.buildKit, Secrets: map[string][]byte{},
		Mask: func(text string) string { return image.Mask(b.source.HostEnv, text) },
	}
	build.Labels = builtOf{Inputs: inputs, Base: inputs, Tags: build.Tags}.labels(of.Labels)
	if b.buildKit {
		build.Args = scopedArgs(of.Args, image.Scope(b.source.Project, of.Context))
	}
	for _, u := range of.Ulimits {
		build.Ulimits = append(build.Ulimits, engine.Ulimit(u))
	}
	for _, s := range of.Secrets {
		content, err := s.Read()
		if err != nil {
			return &fumehood.Error{Op: "read secret " + s.ID, Class: fumehood.ErrConfig, Err: err}
		}
		build.Secrets[s.ID] = content
	}
	if !tree.HasDockerfile() {
		build.Text = b.dockerfile.Text
	}
	names := map[string]string{} // base images that were built here have another name in the daemon
	for ref, on := range b.on {
		if on.build != nil {
			names[ref] = on.image.Ref
		}
	}
	if len(names) > 0 {
		var err error
		if build.Text, err = b.dockerfile.Renamed(names); err != nil {
			return &fumehood.Error{Op: "read", Path: of.Dockerfile, Class: fumehood.ErrFile, Err: err}
		}
	}
	return image.Send(ctx, "", "", []*image.Tree{tree}, func(content io.Reader) error {
		build.Context = content
		_, err := p.engine.Build(ctx, build, func(step string) {
			p.opts.Progress(provider.Progress{Image: b.title(), Status: step, Build: true})
		})
		return err
	})
}

// lockBuild prevents other processes of this user from building the same image. If locking fails, the image may be
// built twice, which only wastes time.
func (p *Provider) lockBuild(ctx context.Context, inputs string) (unlock func(), err error) {
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
		p.opts.Logger.Debug("a build is not locked", "error", err)
		return func() {}, nil
	}
	return func() {
		if runtime.GOOS != "windows" {
			_ = os.Remove(lock.Path()) // safe: processes that wait for it, or create it again, look for the image first
		}
		_ = lock.Unlock()
	}, nil
}

// busyWaits are the pauses before retries when a registry is busy or broken.
var busyWaits = []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second, 20 * time.Second}

// patiently calls f and retries while a registry is busy or broken. The pauses grow. A random jitter of up to half a
// pause is added, so that clients that failed together do not retry together.
func (p *Provider) patiently(ctx context.Context, f func() error) error {
	for _, wait := range p.busyWaits {
		err := f()
		if !errors.Is(err, engine.ErrBusy) {
			return err
		}
		wait += rand.N(wait / 2)
		p.opts.Logger.Warn("registry busy or broken: retrying", "in", wait.Round(100*time.Millisecond), "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
	return f()
}
