//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
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
	images image.Preparer // of base images, which BuildKit fetches once more, by their digest
}

func newBuildKit(p *Provider, client *buildkit.Client) *buildKit {
	b := &buildKit{p: p, client: client}
	b.images = p.preparer(true)
	b.images.Builder = b
	return b
}

// Close does nothing.
func (b *buildKit) Close(context.Context) error { return nil }

// Prepare builds the images of a spec's Dockerfile or project that it builds, and returns their IDs by service.
func (b *buildKit) Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	project, err := box.LoadProject(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	images, err := b.images.Prepare(ctx, project.Sources(), spec.Compose, opts)
	ids := map[string]string{}
	for service, i := range images {
		ids[service] = i.ID
	}
	return ids, err
}

// Accepts returns an ErrUnsupported for what only a Docker Engine builds. Base images are checked for this machine's
// platform, and as the store has them.
func (b *buildKit) Accepts(_ context.Context, s image.Source, d image.Dockerfile) (buildKit bool, err error) {
	if err := supportedBuild(s); err != nil {
		return false, err
	}
	if d.Platforms {
		return false, noBuild("FROM --platform")
	}
	for _, ref := range d.Bases {
		if kind, _, _ := hostpath.OfImage(ref); kind != "" {
			return false, noBuild("FROM " + ref)
		}
	}
	return true, nil
}

// FindBuilt looks up the image of an order in the store.
func (b *buildKit) FindBuilt(ctx context.Context, o image.Order) (image.Image, bool, error) {
	return storeImages{b.p.store, false}.Find(ctx, o.Tags[0])
}

// supportedBuild returns an ErrUnsupported for what only a Docker Engine builds. Base images are checked for this machine's
// platform, and as the store has them.
func supportedBuild(s image.Source) error {
	feature, build := "", s.Build
	switch {
	case s.Platform != "" && s.Platform != "linux/"+runtime.GOARCH:
		feature = "the platform " + s.Platform
	case build.Pull:
		feature = "pull"
	case len(build.CacheFrom) > 0:
		feature = "cache_from"
	case len(build.ExtraHosts) > 0:
		feature = "extra_hosts"
	case len(build.Ulimits) > 0:
		feature = "ulimits"
	case build.ShmSize != 0:
		feature = "shm_size"
	case build.Network != "" && build.Network != "default" && build.Network != "none":
		feature = "the network " + build.Network
	default:
		return nil
	}
	return noBuild(feature)
}

func noBuild(feature string) error {
	return &fumehood.Error{Op: "build image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("%s in a build with BuildKit alone", feature), Hint: "use a Docker Engine"}
}

// Build builds the image of an order, and puts it into the store.
func (b *buildKit) Build(ctx context.Context, o image.Order, tree *image.Tree) (err error) {
	folder, release, err := b.p.store.Folder(ctx, "build-"+o.Inputs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	for ref, name := range o.Bases {
		if strings.HasPrefix(name, image.BuiltPrefix) { // BuildKit would ask a registry for it
			return noBuild("FROM " + ref + ", which the project builds,")
		}
	}
	o.Context, o.Dockerfile = filepath.Join(folder, "context"), filepath.Join(folder, "dockerfile", "Dockerfile")
	if o.Network == "default" {
		o.Network = ""
	}
	secrets := o.Secrets
	o.Secrets = nil
	for _, s := range secrets {
		f, err := inMemory([]byte(s.Content))
		if err != nil {
			return err
		}
		defer f.Close()
		o.Secrets = append(o.Secrets, image.Secret{ID: s.ID, File: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())})
	}
	if err := errors.Join(os.Mkdir(o.Context, 0o700), os.Mkdir(filepath.Dir(o.Dockerfile), 0o700)); err != nil {
		return err
	}
	unpack := archive.Whole(func(content io.Reader) error { return archive.UnpackInto(content, o.Context) })
	if err := image.Send(ctx, "", "", []*image.Tree{tree}, unpack); err != nil {
		return err
	}
	if err := distinguish(o.Context, o.Inputs); err != nil {
		return err
	}
	if err := os.WriteFile(o.Dockerfile, []byte(o.Text), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(o.Dockerfile+".dockerignore", []byte(image.IgnoreNothing), 0o600); err != nil {
		return err
	}
	file := filepath.Join(folder, "image.tar")
	if err := b.client.Build(ctx, o, file); err != nil {
		return err
	}
	_, err = b.p.store.Import(ctx, file)
	return err
}

// distinguish gives the files of a context times that those of another context do not have: BuildKit takes files of an
// earlier context for these if their sizes and times are equal, and here times are whole seconds.
func distinguish(dir, inputs string) error {
	h := fnv.New32a()
	_, _ = io.WriteString(h, inputs)
	fraction := time.Duration(h.Sum32()) % time.Second
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		at := info.ModTime().Truncate(time.Second).Add(fraction)
		return root.Chtimes(path, at, at)
	})
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
