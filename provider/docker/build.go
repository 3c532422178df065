package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImageBuilder = (*Provider)(nil)

// FindImage looks up an image of the daemon, and reports whether it exists.
func (p *Provider) FindImage(ctx context.Context, ref string) (provider.Image, bool, error) {
	image, found, err := p.engine.Image(ctx, ref)
	return describe(image), found, err
}

// PullImage returns a description of an image. It pulls the image first if the daemon does not have it.
func (p *Provider) PullImage(ctx context.Context, ref string) (provider.Image, error) {
	image, err := p.images.Get(ctx, ref)
	if err != nil {
		return provider.Image{}, box.Within(ctx, "find image "+ref, err)
	}
	return describe(image), nil
}

// builtOf is the content of LabelImage.
type builtOf struct {
	Environment string   `json:"environment"`
	Inputs      string   `json:"inputs"`
	Base        string   `json:"base"`
	Tags        []string `json:"tags"`
}

// labels returns the labels of a built image: its own, and those that mark it as built by Fumehood.
func (b builtOf) labels(own map[string]string) map[string]string {
	mark, _ := json.Marshal(b) // only strings: it cannot fail
	labels := map[string]string{}
	maps.Copy(labels, own)
	labels[owner.LabelCache], labels[owner.LabelImage] = owner.EnvImage, string(mark)
	return labels
}

// BuildImage builds an image. A user's Dockerfile is built with BuildKit where the Engine has it, like the builds of
// Compose projects. Everything else uses the Engine's classic builder, because BuildKit finds base images by name only
// and limits neither memory nor cores. Build steps run in containers with Docker's isolation, not with that of
// sandboxes; the Engine has no options to change that. The image has no owner label, because its containers would
// inherit it.
func (p *Provider) BuildImage(ctx context.Context, b provider.ImageBuild) (string, error) {
	buildKit, err := p.buildsWithBuildKit(ctx, b)
	if err != nil {
		return "", err
	}
	mark := builtOf{b.Mark.Environment, b.Mark.Inputs, b.Mark.Base, make([]string, len(b.Tags))}
	for i, tag := range b.Tags {
		if mark.Tags[i], err = image.Tag(tag); err != nil {
			return "", err
		}
		if err := p.mayName(ctx, mark.Tags[i], b.Mark.Environment); err != nil {
			return "", err
		}
		if !strings.HasPrefix(mark.Tags[i], "fumehood:") {
			p.opts.Logger.Warn("image name not in the repository fumehood: others may pull it or build on it", "name", mark.Tags[i])
		}
	}
	for _, why := range b.Allowed {
		p.opts.Logger.Warn("unsafe, allowed", "environment", b.Mark.Environment, "why", why)
	}
	build := image.Build{Tags: mark.Tags, Dockerfile: b.Dockerfile, Args: b.Args, Network: b.Network, Labels: mark.labels(nil)}
	if buildKit {
		build.Args = image.ScopedArgs(b.Args, b.CacheScope)
	}
	if b.Dockerfile == "" {
		build.Inline = b.Text
	}
	id, err := p.engine.Build(ctx, image.Order{Build: build, Memory: b.Memory, CPUs: b.CPUs, BuildKit: buildKit, Report: b.Progress}, b.Context)
	if err != nil && ctx.Err() != nil {
		return "", box.Within(ctx, "build image", err)
	}
	return id, err
}

// mayName rejects a tag for a built image if others rely on it: the name of one of Fumehood's own images, of an image
// that was not built here, or of another environment's image.
func (p *Provider) mayName(ctx context.Context, tag, environment string) error {
	refused := func(hint, why string) error {
		return &fumehood.Error{Op: "name image " + tag, Class: fumehood.ErrConfig, Err: errors.New(why), Hint: hint}
	}
	if strings.HasPrefix(tag, "fumehood") && !strings.HasPrefix(tag, "fumehood:") {
		return refused("choose another name", "names that begin with fumehood are for Fumehood's own images")
	}
	image, found, err := p.engine.Image(ctx, tag)
	if err != nil || !found {
		return err
	}
	hint := "choose another name, or remove it first: docker image rm " + tag
	if !isBuilt(image.Labels) {
		return refused(hint, "the name belongs to an image that this user's Fumehood did not build")
	}
	if other := markOf(image.Labels).Environment; other != environment {
		return refused(hint, fmt.Sprintf("the name belongs to the image of the environment %q", other))
	}
	return nil
}

func (p *Provider) buildsWithBuildKit(ctx context.Context, b provider.ImageBuild) (bool, error) {
	if b.Text == "" {
		return false, nil
	}
	if b.Memory != 0 || b.CPUs != 0 {
		return false, &fumehood.Error{Op: "build image", Class: fumehood.ErrConfig, Err: errors.New("builds of a user's Dockerfile cannot be limited in memory or CPUs")}
	}
	d, err := image.Parse(b.Text, b.Args)
	if err != nil {
		return false, &fumehood.Error{Op: "read", Path: b.Dockerfile, Class: fumehood.ErrFile, Err: err}
	}
	server, err := p.engine.Server(ctx)
	if err != nil {
		return false, err
	}
	return builderFor(d, false, server, p.opts.ClassicBuilder)
}

// Images lists the images that were built here.
func (p *Provider) Images(ctx context.Context) ([]provider.Image, error) {
	found, used, err := p.engine.Images(ctx, owner.LabelCache+"="+owner.EnvImage)
	if err != nil {
		return nil, err
	}
	var images []provider.Image
	for _, i := range found {
		if isBuilt(i.Labels) {
			image := describe(i)
			image.InUse = used[i.ID]
			images = append(images, image)
		}
	}
	return images, nil
}

// RemoveImage removes the tags with which an image was built. The image stays if it has other tags.
func (p *Provider) RemoveImage(ctx context.Context, image provider.Image) error {
	now, found, err := p.engine.Image(ctx, image.ID)
	switch {
	case err != nil || !found:
		return err
	case !isBuilt(now.Labels):
		return &fumehood.Error{Op: "remove image " + image.ID, Class: fumehood.ErrConfig, Err: errors.New("it was not built here")}
	case len(now.Tags) == 0:
		return p.engine.Untag(ctx, now.ID)
	}
	for _, tag := range now.Tags {
		if !slices.Contains(markOf(now.Labels).Tags, tag) {
			continue
		}
		if err := p.engine.Untag(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

func describe(i image.Image) provider.Image {
	image := provider.Image{ID: i.ID, Tags: i.Tags, User: i.User, OnBuild: i.OnBuild, Created: i.Created, Size: i.Size}
	if isBuilt(i.Labels) {
		mark := markOf(i.Labels)
		image.Mark = provider.ImageMark{Environment: mark.Environment, Inputs: mark.Inputs, Base: mark.Base}
	}
	return image
}

// markOf reads the label of an image. It returns the zero value if the label is not valid.
func markOf(labels map[string]string) builtOf {
	var mark builtOf
	if json.Unmarshal([]byte(labels[owner.LabelImage]), &mark) != nil {
		return builtOf{}
	}
	return mark
}

// isBuilt reports whether an image was built here. An image that others built on top of it inherits the labels, but has
// no valid seal.
func isBuilt(labels map[string]string) bool { return labels[owner.LabelCache] == owner.EnvImage }

// hasOtherNames reports whether an image of ours also has a tag that we did not give it. Cleanup does not remove such
// an image.
func hasOtherNames(o engine.Object) bool {
	own := markOf(o.Labels).Tags
	return o.Kind == engine.ImageKind && o.Labels[owner.LabelCache] == owner.EnvImage &&
		slices.ContainsFunc(o.Tags, func(tag string) bool { return !slices.Contains(own, tag) })
}
