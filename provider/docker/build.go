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
	"github.com/fumehood/fumehood/internal/buildcontext"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImageBuilder = (*Provider)(nil)

// FindImage describes an image that the daemon has.
func (p *Provider) FindImage(ctx context.Context, ref string) (provider.Image, bool, error) {
	image, found, err := p.engine.Image(ctx, ref)
	return describe(image), found, err
}

// PullImage describes an image, and pulls it first if the daemon has none of that name.
func (p *Provider) PullImage(ctx context.Context, ref string) (provider.Image, error) {
	image, err := p.ensureImage(ctx, ref)
	if err != nil {
		return provider.Image{}, within(ctx, "find image "+ref, err)
	}
	return describe(image), nil
}

// builtOf is what LabelImage holds.
type builtOf struct {
	Environment string   `json:"environment"`
	Inputs      string   `json:"inputs"`
	Base        string   `json:"base"`
	Tags        []string `json:"tags"`
}

// labels are the labels of an image that is built, besides its own.
func (of builtOf) labels(own map[string]string) map[string]string {
	mark, _ := json.Marshal(of) // texts: it cannot fail
	labels := map[string]string{}
	maps.Copy(labels, own)
	labels[owner.LabelCache], labels[owner.LabelImage] = owner.EnvImage, string(mark)
	return labels
}

// BuildImage builds an image: what a user has written by BuildKit where the Engine has it, as what Compose projects
// build, and all else by the Engine's own builder, for BuildKit knows images by their names only, and bounds neither
// memory nor cores. Its steps run in containers that are isolated as Docker isolates them, not as sandboxes are: the
// Engine takes no other wishes for them. The image has no owner's label: its containers would inherit that.
func (p *Provider) BuildImage(ctx context.Context, b provider.ImageBuild) (string, error) {
	buildKit, err := p.buildsWithBuildKit(b)
	if err != nil {
		return "", err
	}
	of := builtOf{b.Mark.Environment, b.Mark.Inputs, b.Mark.Base, make([]string, len(b.Tags))}
	for i, tag := range b.Tags {
		if of.Tags[i], err = engine.Tag(tag); err != nil {
			return "", err
		}
		if err := p.mayName(ctx, of.Tags[i], b.Mark.Environment); err != nil {
			return "", err
		}
		if !strings.HasPrefix(of.Tags[i], "fumehood:") {
			p.opts.Logger.Warn("an image gets a name that others may pull or build on", "name", of.Tags[i])
		}
	}
	for _, why := range b.Allowed {
		p.opts.Logger.Warn("unsafe, allowed", "environment", b.Mark.Environment, "why", why)
	}
	report := b.Progress
	if report == nil {
		report = func(string) {}
	}
	args := b.Args
	if buildKit {
		args = scopedArgs(args, b.CacheScope)
	}
	id, err := p.engine.Build(ctx, engine.Build{
		Tags: of.Tags, Context: b.Context, Dockerfile: b.Dockerfile, Args: args, Network: b.Network, Memory: b.Memory, CPUs: b.CPUs,
		BuildKit: buildKit, Labels: of.labels(nil),
	}, report)
	if err != nil && ctx.Err() != nil {
		return "", within(ctx, "build image", err)
	}
	return id, err
}

// mayName refuses a name for what is built that others count on: one of Fumehood's own images, of an image that was not
// built here, or of another environment's.
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
	hint := "choose another name, or take it away first: docker image rm " + tag
	if !isBuilt(image.Labels) {
		return refused(hint, "it is the name of an image that this user's Fumehood did not build")
	}
	if other := markOf(image.Labels).Environment; other != environment {
		return refused(hint, fmt.Sprintf("it is the name of the image of the environment %q", other))
	}
	return nil
}

func (p *Provider) buildsWithBuildKit(b provider.ImageBuild) (bool, error) {
	if b.Text == "" {
		return false, nil
	}
	if b.Memory != 0 || b.CPUs != 0 {
		return false, &fumehood.Error{Op: "build image", Class: fumehood.ErrConfig, Err: errors.New("the builder of a user's Dockerfile bounds neither memory nor cores")}
	}
	d, err := buildcontext.Parse(b.Text, b.Args)
	if err != nil {
		return false, &fumehood.Error{Op: "read", Path: b.Dockerfile, Class: fumehood.ErrConfig, Err: err}
	}
	return builderFor(d, false, p.server, p.opts.ClassicBuilder)
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

// RemoveImage takes the tags that it was built with from an image. Where it has others it stays.
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

func describe(i engine.Image) provider.Image {
	image := provider.Image{ID: i.ID, Tags: i.Tags, User: i.User, OnBuild: i.OnBuild, Created: i.Created, Size: i.Size}
	if isBuilt(i.Labels) {
		of := markOf(i.Labels)
		image.Mark = provider.ImageMark{Environment: of.Environment, Inputs: of.Inputs, Base: of.Base}
	}
	return image
}

// markOf reads the label of an image; what others wrote there says nothing.
func markOf(labels map[string]string) builtOf {
	var of builtOf
	if json.Unmarshal([]byte(labels[owner.LabelImage]), &of) != nil {
		return builtOf{}
	}
	return of
}

// isBuilt tells an image that was built here. One that others have built on it has its labels too, and no valid seal.
func isBuilt(labels map[string]string) bool { return labels[owner.LabelCache] == owner.EnvImage }

// hasOtherNames tells an image of ours to which somebody else has given a name as well. Clean-up leaves it alone.
func hasOtherNames(o engine.Object) bool {
	ours := markOf(o.Labels).Tags
	return o.Kind == engine.ImageKind && o.Labels[owner.LabelCache] == owner.EnvImage &&
		slices.ContainsFunc(o.Tags, func(tag string) bool { return !slices.Contains(ours, tag) })
}
