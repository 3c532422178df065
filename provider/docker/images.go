package docker

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
)

// engineImages is the Engine as a store and builder of images.
type engineImages struct{ p *Provider }

// Arch returns the architecture of the daemon's machine.
func (e engineImages) Arch(ctx context.Context) (string, error) {
	server, err := e.p.engine.Server(ctx)
	return server.Arch, err
}

// Find looks up an image of the daemon.
func (e engineImages) Find(ctx context.Context, ref string) (image.Image, bool, error) {
	return e.p.engine.Image(ctx, ref)
}

// Fetch has the daemon pull an image with the user's credentials.
func (e engineImages) Fetch(ctx context.Context, ref, platform string) error {
	auth, err := e.p.compose.Auth(ref)
	if err != nil {
		return err
	}
	return e.p.engine.Pull(ctx, ref, platform, auth, e.p.opts.Progress)
}

// Accepts chooses the builder as builderFor does.
func (e engineImages) Accepts(ctx context.Context, s image.Source, d image.Dockerfile) (buildKit bool, err error) {
	server, err := e.p.engine.Server(ctx)
	if err != nil {
		return false, err
	}
	return builderFor(d, len(s.Build.Secrets) > 0, server, e.p.opts.ClassicBuilder)
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

// FindBuilt looks up the image of an order. An image that lacks one of its names is tagged with it.
func (e engineImages) FindBuilt(ctx context.Context, o image.Order) (image.Image, bool, error) {
	found, ok, err := e.p.engine.Image(ctx, o.Tags[0])
	if err != nil || !ok || markOf(found.Labels).Inputs != o.Inputs {
		return image.Image{}, false, err
	}
	for _, name := range o.Tags {
		if !slices.Contains(found.Tags, name) {
			if err := e.p.engine.Tag(ctx, found.ID, name); err != nil {
				return image.Image{}, false, err
			}
		}
	}
	return found, true, nil
}

// Build has the Engine build the image of an order.
func (e engineImages) Build(ctx context.Context, o image.Order, tree *image.Tree) error {
	o.Labels = builtOf{Inputs: o.Inputs, Base: o.Inputs, Tags: o.Tags}.labels(o.Labels)
	return image.Send(ctx, "", "", []*image.Tree{tree}, func(content io.Reader) error {
		_, err := e.p.engine.Build(ctx, o, content)
		return err
	})
}
