//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/native/buildkit"
	"github.com/fumehood/fumehood/provider"
)

// buildKit builds images with BuildKit alone, and puts them into the image store.
type buildKit struct {
	p      *Provider
	client *buildkit.Client
}

// Close does nothing.
func (b *buildKit) Close(context.Context) error { return nil }

// Prepare builds the images of a spec's Dockerfile or project that it builds, and returns their IDs by service.
func (b *buildKit) Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	project, err := compose.Load(ctx, cmp.Or(spec.Name, preparedName), *spec.Compose)
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	err = image.Limited(ctx, "build", spec.Compose.BuildTimeout, func(ctx context.Context) error {
		for _, s := range project.Sources() {
			if s.Build == nil {
				continue
			}
			s.AllowUnsafe, s.HostEnv, s.Exclude = spec.Compose.AllowUnsafe, spec.Compose.HostEnv, opts.Exclude
			if images[s.Service], err = b.ensure(ctx, s, spec.Compose.Prebuilt); err != nil {
				return err
			}
		}
		for _, s := range project.Sources() {
			if by := builds(project.Sources(), s.Image); s.Build == nil && by != "" {
				images[s.Service] = images[by]
			}
		}
		return nil
	})
	return images, err
}

// ensure returns the ID of the image of a build, and builds it if the store does not have it.
// Concurrent calls, also of other processes, build it once.
func (b *buildKit) ensure(ctx context.Context, s image.Source, prebuilt bool) (id string, err error) {
	if err := supportedBuild(s); err != nil {
		return "", err
	}
	d, err := s.ReadDockerfile("linux/" + runtime.GOARCH)
	if err != nil {
		return "", err
	}
	if err := b.allowed(s, d.Check(s.Build.Args)); err != nil {
		return "", err
	}
	if d.Platforms {
		return "", noBuild("FROM --platform")
	}
	bases, pinned, caches := map[string]string{}, map[string]string{}, d.Caches
	for _, ref := range d.Bases {
		if kind, _, _ := hostpath.OfImage(ref); kind != "" {
			return "", noBuild("FROM " + ref)
		}
		img, err := b.p.store.Pull(ctx, ref, !prebuilt) // BuildKit fetches it once more, by its digest
		if err != nil {
			return "", err
		}
		bases[ref], pinned[ref], caches = img.ID, img.Pinned, caches || len(img.Config.OnBuild) > 0
		if err := errors.Join(b.allowed(s, image.CheckTriggers(ref, img.Config.OnBuild)), img.Close()); err != nil {
			return "", err
		}
	}
	tree, err := s.BuildContext(ctx, d)
	if err != nil {
		return "", err
	}
	scope := ""
	if caches { // results of such steps are not shared with other projects
		scope = image.Scope(s.Project, s.Build.Context)
	}
	key := image.HashOf([]any{
		bases, tree.Hash(), d.Text, s.Build.Args, s.Build.Labels, s.Build.Target, s.Build.Network, s.Platform, s.Build.SecretIDs(), scope,
	})
	name := "fumehood-build:" + key
	find := func() (string, error) {
		img, err := b.p.store.Find(ctx, name)
		if err != nil {
			return "", err
		}
		return img.ID, img.Close()
	}
	if id, err := find(); prebuilt || err == nil {
		return id, err
	}
	folder, release, err := b.p.store.Folder(ctx, "build-"+key)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	if id, err := find(); err == nil { // another call has built it
		return id, nil
	}
	if d.Text, err = d.Renamed(pinned); err != nil {
		return "", &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrFile, Err: err}
	}
	return b.build(ctx, s, d, tree, name, folder)
}

// supportedBuild returns an ErrUnsupported for what only a Docker Engine builds. Base images are checked for this machine's
// platform, and as the store has them.
func supportedBuild(s image.Source) error {
	what, build := "", s.Build
	switch {
	case s.Platform != "" && s.Platform != "linux/"+runtime.GOARCH:
		what = "the platform " + s.Platform
	case build.Pull:
		what = "pull"
	case len(build.CacheFrom) > 0:
		what = "cache_from"
	case len(build.ExtraHosts) > 0:
		what = "extra_hosts"
	case len(build.Ulimits) > 0:
		what = "ulimits"
	case build.ShmSize != 0:
		what = "shm_size"
	case build.Network != "" && build.Network != "default" && build.Network != "none":
		what = "the network " + build.Network
	default:
		return nil
	}
	return noBuild(what)
}

func noBuild(what string) error {
	return &fumehood.Error{Op: "build image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("%s in a build with BuildKit alone", what), Hint: "use a Docker Engine"}
}

// allowed returns an error if unsafe is not nil, unless the user allows unsafe builds. It logs what is allowed.
func (b *buildKit) allowed(s image.Source, unsafe error) error {
	if unsafe == nil {
		return nil
	}
	if !s.AllowUnsafe {
		return &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrFile, Err: unsafe, Hint: "or allow it (--allow-unsafe)"}
	}
	b.p.log.Warn("unsafe, allowed", "service", s.Service, "dockerfile", s.Build.Dockerfile, "why", image.Mask(s.HostEnv, unsafe.Error()))
	return nil
}

// build builds an image under a name, in an empty folder, and returns its ID.
func (b *buildKit) build(ctx context.Context, s image.Source, d image.Dockerfile, tree *image.Tree, name, folder string) (string, error) {
	build := buildkit.Build{
		Name: "docker.io/library/" + name, Context: filepath.Join(folder, "context"), Dockerfile: filepath.Join(folder, "dockerfile", "Dockerfile"),
		Labels: s.Build.Labels,
		Target: s.Build.Target, Platform: s.Platform, NoCache: s.Build.NoCache,
		Args: map[string]string{image.ScopeArg: image.Scope(s.Project, s.Build.Context)}, Secrets: map[string]string{},
		Mask: func(text string) string { return image.Mask(s.HostEnv, text) },
		Progress: func(step string) {
			b.p.opts.Progress(provider.Progress{Image: s.Service, Status: step})
		},
	}
	maps.Copy(build.Args, s.Build.Args) // one that sets the scope has been allowed
	if s.Build.Network == "none" {
		build.Network = "none"
	}
	for _, secret := range s.Build.Secrets {
		content, err := secret.Read()
		if err != nil {
			return "", &fumehood.Error{Op: "read secret " + secret.ID, Class: fumehood.ErrConfig, Err: err}
		}
		f, err := inMemory(content)
		if err != nil {
			return "", err
		}
		defer f.Close()
		build.Secrets[secret.ID] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	}
	if err := errors.Join(os.Mkdir(build.Context, 0o700), os.Mkdir(filepath.Dir(build.Dockerfile), 0o700)); err != nil {
		return "", err
	}
	unpack := archive.Whole(func(content io.Reader) error { return archive.UnpackInto(content, build.Context) })
	if err := image.Send(ctx, "", "", []*image.Tree{tree}, unpack); err != nil {
		return "", err
	}
	if err := os.WriteFile(build.Dockerfile, []byte(d.Text), 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(build.Dockerfile+".dockerignore", []byte(image.IgnoreNothing), 0o600); err != nil {
		return "", err
	}
	file := filepath.Join(folder, "image.tar")
	if err := b.client.Build(ctx, build, file); err != nil {
		return "", err
	}
	imported, err := b.p.store.Import(ctx, file)
	if err != nil {
		return "", err
	}
	return imported[0].ID, nil
}

// inMemory returns a file that has no name on a disk.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("fumehood-secret", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "secret") //nolint:gosec // not negative
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
