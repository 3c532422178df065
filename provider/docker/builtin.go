package docker

import (
	"context"
	"embed"
	"errors"
	"path"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/provider"
)

// Images that ship with the library are Dockerfiles in the folder builtin, without a context. They are built when
// they are first needed, and again when their Dockerfile or the default image, on which they are built, is another.

//go:embed builtin/*.Dockerfile
var builtins embed.FS

const (
	builtinPrefix = "fumehood-builtin/"
	builtinFiles  = ".Dockerfile"
)

// BuiltinImage is an image that ships with the library.
type BuiltinImage struct {
	Name  string // "fumehood-builtin/agent"
	About string // what it is, in a sentence
	// Image is the one that there is of that name, zero where there is none; UpToDate says that it is of the
	// Dockerfile that this library has, and of the default image as it is.
	Image    provider.Image
	UpToDate bool
}

// BuiltinImages lists the images that ship with the library. Nothing is pulled or built.
func (p *Provider) BuiltinImages(ctx context.Context) ([]BuiltinImage, error) {
	files, err := builtins.ReadDir("builtin")
	if err != nil {
		return nil, &fumehood.Error{Op: "list images", Class: fumehood.ErrInfrastructure, Err: err}
	}
	var all []BuiltinImage
	for _, f := range files {
		b := BuiltinImage{Name: builtinPrefix + strings.TrimSuffix(f.Name(), builtinFiles)}
		source, _ := p.builtin(b.Name)
		b.About, _, _ = strings.Cut(strings.TrimPrefix(source.Build.Inline, "# "), "\n")
		if b.Image, _, err = p.FindImage(ctx, b.Name); err != nil {
			return nil, err
		}
		built, err := p.prepare(ctx, []compose.Source{source}, &fumehood.Compose{Prebuilt: true}, nil)
		if err != nil && !errors.Is(err, fumehood.ErrConfig) {
			return nil, err
		}
		b.UpToDate = err == nil && built[b.Name].ID == b.Image.ID
		all = append(all, b)
	}
	return all, nil
}

// builtin says how the image of a name is built, if it is one that ships with the library.
func (p *Provider) builtin(ref string) (compose.Source, bool) {
	name, ok := strings.CutPrefix(familiar(ref), builtinPrefix)
	if !ok {
		return compose.Source{}, false
	}
	name = strings.TrimSuffix(name, ":latest")
	text, err := builtins.ReadFile(path.Join("builtin", name+builtinFiles))
	if err != nil {
		return compose.Source{}, false
	}
	base := p.opts.DefaultImage
	if strings.HasPrefix(base, builtinPrefix) {
		base = DefaultImage
	}
	return compose.Source{
		Service: builtinPrefix + name, Image: builtinPrefix + name, Pull: compose.PullMissing,
		Build: &compose.Build{Inline: string(text), Args: map[string]string{"BASE": base}},
	}, true
}
