package kubernetes

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
)

// guestArchs are the architectures of the guest's image.
var guestArchs = []string{"amd64", "arm64"}

// WriteGuestImage writes the image of the guest for an architecture, such as amd64, as an archive that `docker load` and
// `ctr images import` accept. It has the name ref. Options.GuestImage must name the image of the same version of this module.
func WriteGuestImage(ctx context.Context, ref, arch string, out io.Writer) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return refError(ref, err)
	}
	img, err := guestImage(ctx, arch)
	if err != nil {
		return err
	}
	return tarball.Write(tag, img, out)
}

// PushGuestImage pushes the image of the guest, for amd64 and arm64, to a registry, with the credentials of the docker
// command's configuration. It returns the reference with the digest, which Options.GuestImage may be.
func PushGuestImage(ctx context.Context, ref string) (string, error) {
	tag, err := name.ParseReference(ref)
	if err != nil {
		return "", refError(ref, err)
	}
	var index v1.ImageIndex = empty.Index
	for _, arch := range guestArchs {
		img, err := guestImage(ctx, arch)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	digest, err := index.Digest()
	if err == nil {
		err = remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("fumehood"))
	}
	if err != nil {
		return "", &fumehood.Error{Op: "push " + ref, Class: fumehood.ErrUnavailable, Err: err, Hint: "check that the registry answers, and `docker login`"}
	}
	return tag.Context().Digest(digest.String()).String(), nil
}

func refError(ref string, err error) error {
	return &fumehood.Error{Op: "make the guest's image", Class: fumehood.ErrConfig, Err: fmt.Errorf("%q: %w", ref, err), Hint: "name it like registry.example.org/fumehood-guest:1"}
}

// guestImage returns the image of the guest: /guest, which users other than root cannot read.
func guestImage(ctx context.Context, arch string) (v1.Image, error) {
	b, err := guestbin.For(ctx, arch, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	program, err := b.Program()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	if err := w.WriteHeader(&tar.Header{Name: "guest", Mode: 0o711, Size: int64(len(program)), Format: tar.FormatPAX}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, Config: v1.Config{Entrypoint: []string{"/guest"}}})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}
