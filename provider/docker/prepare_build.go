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
	"github.com/fumehood/fumehood/internal/buildcontext"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
)

// imageBuild is the build of a service's image.
type imageBuild struct {
	source     compose.Source
	names      []string // what the project calls the image; in the daemon it has the name of its content only
	ours       bool     // it ships with the library, and has its name in the daemon too
	text       string   // of the Dockerfile
	path       string   // of the Dockerfile in the context
	added      bool     // the Dockerfile is not in the context's folder, or nowhere, and is put there
	dockerfile buildcontext.Dockerfile
	buildKit   bool
	on         map[string]*node // the images that it uses, by their references; nil until they are planned
}

// addedDockerfile is the path in a context of a Dockerfile that is not from there.
const addedDockerfile = ".fumehood.Dockerfile"

// newImageBuild reads a build's Dockerfile.
func (p *Provider) newImageBuild(s compose.Source) (*imageBuild, error) {
	b := &imageBuild{source: s, ours: strings.HasPrefix(s.Service, builtinPrefix)} // which no service of a project can be called
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
	err := b.read()
	if err != nil {
		return nil, err
	}
	if b.dockerfile, err = buildcontext.Parse(b.text, p.argsOf(s)); err != nil {
		return nil, &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrConfig, Err: err}
	}
	if err = p.mayBuild(s, b.dockerfile.Check(s.Build.Args)); err != nil {
		return nil, err
	}
	b.buildKit, err = builderFor(b.dockerfile, len(s.Build.Secrets) > 0, p.server, p.opts.ClassicBuilder)
	return b, err
}

// mayBuild is what becomes of an error that says why a build is not safe: none, where the user has allowed that.
func (p *Provider) mayBuild(s compose.Source, unsafe error) error {
	if unsafe == nil {
		return nil
	}
	if s.AllowUnsafe {
		p.opts.Logger.Warn("unsafe, allowed", "service", s.Service, "dockerfile", s.Build.Dockerfile, "why", unsafe)
		return nil
	}
	return &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrConfig, Err: unsafe, Hint: "or allow it with AllowUnsafe, --allow-unsafe"}
}

// read reads the Dockerfile and decides where it is in the context.
func (b *imageBuild) read() (err error) {
	build := b.source.Build
	b.path, b.added = addedDockerfile, true
	if build.Inline != "" {
		b.text = build.Inline
		return nil
	}
	dockerfile := build.Dockerfile
	if !filepath.IsAbs(dockerfile) {
		dockerfile = filepath.Join(build.Context, dockerfile)
	}
	if rel, err := filepath.Rel(build.Context, dockerfile); err == nil && filepath.IsLocal(rel) {
		b.path, b.added = filepath.ToSlash(rel), false
		b.text, err = buildcontext.ReadDockerfile(build.Context, rel)
		return err
	}
	b.text, err = buildcontext.ReadDockerfile(filepath.Dir(dockerfile), filepath.Base(dockerfile))
	return err
}

// argsOf are the arguments of a build, those of the builder itself among them.
func (p *Provider) argsOf(s compose.Source) map[string]string {
	host := "linux/" + p.server.Arch
	target := s.Platform
	if target == "" {
		target = host
	}
	args := map[string]string{}
	for prefix, platform := range map[string]string{"BUILD": host, "TARGET": target} {
		system, rest, _ := strings.Cut(platform, "/")
		arch, variant, _ := strings.Cut(rest, "/")
		maps.Copy(args, map[string]string{prefix + "PLATFORM": platform, prefix + "OS": system, prefix + "ARCH": arch, prefix + "VARIANT": variant})
	}
	maps.Copy(args, s.Build.Args)
	return args
}

// Engines have had a BuildKit that knows heredocs since this version.
const heredocEngine = "23.0"

// builderFor decides who builds: BuildKit where there is one. What only BuildKit can do where there is none, or
// only a newer one, is an ErrUnsupported.
func builderFor(d buildcontext.Dockerfile, secrets bool, server engine.Server, classic bool) (buildKit bool, err error) {
	fail := func(hint, format string, a ...any) (bool, error) {
		return false, &fumehood.Error{Op: "build image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf(format, a...), Hint: hint}
	}
	if server.BuildKit && !classic {
		if d.Heredoc > 0 && d.Syntax == "" && engine.VersionLess(server.Version, heredocEngine) {
			return fail("begin the Dockerfile with the line `# syntax=docker/dockerfile:1`, or upgrade the Engine to "+heredocEngine,
				"line %d of the Dockerfile is a heredoc, which the BuildKit of Engine %s does not know", d.Heredoc, server.Version)
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
		hint = "allow BuildKit: leave DOCKER_BUILDKIT=0 out"
	}
	return fail(hint, "it needs BuildKit, and there is none: %s", strings.Join(needs, "; "))
}

// buildRecipe is raised where the same inputs are to make another image.
const buildRecipe = 1

// inputs is the hash of all that an image is made of. Of secrets it has their ids: as for the builders, a new
// value makes no new image.
func (b *imageBuild) inputs(bases map[string]string, context string) string {
	build := b.source.Build
	var secrets []string
	for _, s := range build.Secrets {
		secrets = append(secrets, s.ID)
	}
	slices.Sort(secrets)
	return buildcontext.HashOf(struct {
		Recipe                    int
		Bases                     map[string]string
		Context, Dockerfile       string
		Args, Labels              map[string]string
		Target, Network, Platform string
		ExtraHosts, Secrets       []string
		Ulimits                   []compose.Ulimit
		ShmSize                   int64
		Scope                     string `json:",omitempty"`
	}{
		buildRecipe, bases, context, b.text, build.Args, build.Labels, build.Target, build.Network, b.source.Platform,
		build.ExtraHosts, secrets, build.Ulimits, build.ShmSize, b.scope(),
	})
}

// scope names the caches that steps mount; empty where none does. What such a step makes is that project's own. ONBUILD of a
// base may mount some.
func (b *imageBuild) scope() string {
	caches := b.dockerfile.Caches
	for _, on := range b.on {
		caches = caches || len(on.image.OnBuild) > 0
	}
	if !b.buildKit || !caches {
		return ""
	}
	return buildcontext.Scope(b.source.Project, b.source.Build.Context)
}

// scopedArgs are the arguments of a build with a namespace for its caches, unless they have one, which was allowed then.
// ONBUILD of a base may mount caches too, so that every build by BuildKit has it.
func scopedArgs(args map[string]string, scope string) map[string]string {
	scoped := map[string]string{buildcontext.ScopeArg: scope}
	maps.Copy(scoped, args)
	return scoped
}

// builtPrefix begins the names of images that projects' builds have made; the beginning of their inputs' hash
// follows. Who has one of that name has the image.
const (
	builtPrefix = "fumehood-build:"
	builtHash   = 20 // digits of the hash
)

// build makes sure that the image is there. Those who want the same at the same time, here or in another process
// of this user's, share one build. With prebuilt nothing is built. Without an ID it is not there, or is missing what it
// is built on.
func (p *Provider) build(ctx context.Context, b *imageBuild, prebuilt bool) (prepared, error) {
	bases := map[string]string{}
	for ref, on := range b.on {
		if on.image.ID == "" {
			return prepared{}, nil
		}
		bases[ref] = on.image.ID
		if err := p.mayBuild(b.source, buildcontext.CheckTriggers(ref, on.image.OnBuild)); err != nil {
			return prepared{}, err
		}
	}
	return shared(ctx, &p.builds, buildcontext.HashOf([]any{b.source, bases, prebuilt}), func(ctx context.Context) (prepared, error) {
		return p.ensureBuilt(ctx, b, bases, prebuilt)
	})
}

func (p *Provider) ensureBuilt(ctx context.Context, b *imageBuild, bases map[string]string, prebuilt bool) (prepared, error) {
	tree, err := b.context(ctx)
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
		err = &fumehood.Error{Op: "build image", Class: fumehood.ErrInfrastructure, Err: errors.New("it is gone again")}
	}
	return image, err
}

// context reads the build's folder, if it has one.
func (b *imageBuild) context(ctx context.Context) (*buildcontext.Tree, error) {
	dir, dockerfile := b.source.Build.Context, b.path
	if dir == "" {
		return buildcontext.Folder(""), nil
	}
	if b.added {
		dockerfile = ""
	}
	return buildcontext.Context(ctx, dir, dockerfile, buildcontext.Options{AnyLinks: true, Exclude: b.source.Exclude})
}

// findBuilt looks for the image of the inputs; without an ID it is not there. One that ships with the library gets its
// name where it lacks that.
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

// tags are the names that the image gets in the daemon; the first is that of its content. A project's names are not
// among them: they could be anybody's.
func (b *imageBuild) tags(inputs string) []string {
	tags := []string{builtPrefix + inputs[:builtHash]}
	if b.ours {
		tags = append(tags, b.names...)
	}
	return tags
}

// runBuild has the Engine build the image.
func (p *Provider) runBuild(ctx context.Context, b *imageBuild, inputs string, tree *buildcontext.Tree) error {
	of := b.source.Build
	build := engine.Build{
		Tags: b.tags(inputs), Dockerfile: b.path, Args: of.Args, Network: of.Network, Target: of.Target,
		Platform: b.source.Platform, NoCache: of.NoCache, CacheFrom: of.CacheFrom, ExtraHosts: of.ExtraHosts, ShmSize: of.ShmSize,
		BuildKit: b.buildKit, Secrets: map[string][]byte{},
	}
	build.Labels = builtOf{Inputs: inputs, Base: inputs, Tags: build.Tags}.labels(of.Labels)
	if b.buildKit {
		build.Args = scopedArgs(of.Args, buildcontext.Scope(b.source.Project, of.Context))
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
	dockerfile := ""
	if b.added {
		dockerfile = b.text
	}
	names := map[string]string{} // what it is built on and was built here has another name in the daemon
	for ref, on := range b.on {
		if on.build != nil {
			names[ref] = on.image.Ref
		}
	}
	if len(names) > 0 {
		var err error
		if dockerfile, err = b.dockerfile.Renamed(names); err != nil {
			return &fumehood.Error{Op: "read", Path: of.Dockerfile, Class: fumehood.ErrConfig, Err: err}
		}
		build.Dockerfile = addedDockerfile
	}
	return buildcontext.Send(ctx, build.Dockerfile, dockerfile, []*buildcontext.Tree{tree}, func(content io.Reader) error {
		build.Context = content
		_, err := p.engine.Build(ctx, build, func(step string) {
			p.opts.Progress(Progress{Image: b.source.Service, Status: step, Build: true})
		})
		return err
	})
}

// lockBuild keeps other processes of this user's from building the same. Where there can be no lock, the image
// may be built twice, which is no more than a waste.
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
			_ = os.Remove(lock.Path()) // who waits for it looks for the image first, as who makes it again does
		}
		_ = lock.Unlock()
	}, nil
}

// busyWaits are the pauses before what a busy or broken registry has refused is tried again.
var busyWaits = []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second, 20 * time.Second}

// patiently calls f again where a registry was busy or broken, after growing pauses, to which up to a half is
// added so that those who were refused together do not come back together.
func (p *Provider) patiently(ctx context.Context, f func() error) error {
	for _, wait := range p.busyWaits {
		err := f()
		if !errors.Is(err, engine.ErrBusy) {
			return err
		}
		wait += rand.N(wait / 2)
		p.opts.Logger.Warn("a registry is busy or broken; trying again", "in", wait.Round(100*time.Millisecond), "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
	return f()
}
