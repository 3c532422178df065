package docker

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// Built-in images are Dockerfiles in the folder builtin, without a build context. They are built on first use, and
// rebuilt when the Dockerfile or the default image, which is their base, changes.

//go:embed builtin/*.Dockerfile
var builtins embed.FS

const (
	builtinPrefix = image.BuiltinPrefix
	builtinFiles  = ".Dockerfile"
)

// BuiltinImage describes an image that ships with the library.
type BuiltinImage struct {
	Name  string // "fumehood-builtin/agent"
	About string // a one-sentence description
	// Image is the image that the daemon has under that name; zero if there is no such image. UpToDate reports whether
	// it was built from this library's Dockerfile and the current default image.
	Image    provider.Image
	UpToDate bool
}

// Builtins lists the images that ship with the library, without those of a daemon: Image and UpToDate are zero.
func Builtins() []BuiltinImage {
	var all []BuiltinImage
	for _, name := range builtinNames() {
		text, _ := builtins.ReadFile("builtin/" + strings.TrimPrefix(name, builtinPrefix) + builtinFiles) // embedded: it cannot fail
		about, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		all = append(all, BuiltinImage{Name: name, About: about})
	}
	return all
}

// BuiltinImages lists the images that ship with the library. It pulls and builds nothing.
func (p *Provider) BuiltinImages(ctx context.Context) ([]BuiltinImage, error) {
	var all []BuiltinImage
	for _, b := range Builtins() {
		source, _, err := p.builtin(b.Name)
		if err != nil {
			return nil, err
		}
		if b.Image, _, err = p.FindImage(ctx, b.Name); err != nil {
			return nil, err
		}
		built, err := p.images.Prepare(ctx, []image.Source{source}, &fumehood.Compose{Prebuilt: true}, provider.PrepareOptions{})
		if err != nil && !errors.Is(err, fumehood.ErrConfig) {
			return nil, err
		}
		b.UpToDate = err == nil && built[b.Name].ID == b.Image.ID
		all = append(all, b)
	}
	return all, nil
}

// builtin returns the build of a built-in image. ok is false for the name of another image. An unknown name below
// builtinPrefix is an ErrConfig: no registry has such an image.
func (p *Provider) builtin(ref string) (s image.Source, ok bool, err error) {
	name, ok := strings.CutPrefix(image.Familiar(ref), builtinPrefix)
	if !ok {
		return image.Source{}, false, nil
	}
	name = strings.TrimSuffix(name, ":latest")
	text, err := builtins.ReadFile("builtin/" + name + builtinFiles)
	if err != nil {
		return image.Source{}, false, &fumehood.Error{
			Op: "prepare image", Class: fumehood.ErrConfig, Err: fmt.Errorf("no built-in image %s", ref),
			Hint: "there is " + strings.Join(builtinNames(), ", "),
		}
	}
	base := p.opts.DefaultImage
	if strings.HasPrefix(base, builtinPrefix) {
		base = DefaultImage
	}
	return image.Source{
		Service: builtinPrefix + name, Image: builtinPrefix + name, Pull: image.PullMissing, Builtin: true,
		Build: &image.Build{Inline: string(text), Args: map[string]string{"BASE": base}},
	}, true, nil
}

// builtinNames returns the names of the built-in images.
func builtinNames() []string {
	files, _ := builtins.ReadDir("builtin") // embedded: it cannot fail
	var names []string
	for _, f := range files {
		names = append(names, builtinPrefix+strings.TrimSuffix(f.Name(), builtinFiles))
	}
	return names
}
