// Package envimage builds the images of environment specs. It decides of what an image is made and whether
// that has changed; a provider.ImageBuilder builds it.
//
// An environment's image is its docker.image, or what its docker.build makes, with the spec's variables and
// its working directory. A submission's image has a workspace, static assets and the evaluation's set-up
// besides, so that it can be judged where no folder of this machine can be mounted.
package envimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/buildcontext"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/spec"
)

// Submission is what a submission's image has besides the environment's.
type Submission struct {
	// Workspace is the folder that becomes the working directory's content. Required.
	Workspace string
	// Assets is the folder whose content is put below spec.StaticDir. Empty means none.
	Assets string
	// Tag is the image's name. Empty means fumehood:NAME-submission-HASH, of the environment's name and its
	// inputs.
	Tag string
}

// Built is an image that Build returns.
type Built struct {
	ID       string
	Tags     []string // the first is the one to use
	Inputs   string   // a hash of all that it is made of
	UpToDate bool     // nothing was built: the image was there, of the same inputs
}

// Build builds an environment's image, unless there is one of the same inputs: the base images, as they
// are there now; the build's context without what its .dockerignore names, and its arguments; variables,
// working directory and user. progress is told each step; nil tells nobody.
//
// What a Dockerfile's steps fetch is not looked at: remove the image to have them run again. Base images are
// pulled if they are missing, never because there may be newer ones.
func Build(ctx context.Context, b provider.ImageBuilder, e *spec.Environment, progress func(tag, step string)) (Built, error) {
	p, err := newPlan(ctx, e)
	if err != nil {
		return Built{}, err
	}
	ids, err := p.resolve(func(ref string) (provider.Image, bool, error) {
		image, err := b.PullImage(ctx, ref)
		return image, true, err
	})
	if err != nil {
		return Built{}, err
	}
	inputs := p.inputs(ids)
	base, steps := p.steps(ids)
	return ensure(ctx, b, p.tags, provider.ImageMark{Environment: nameOf(e), Inputs: inputs, Base: inputs}, base, steps, progress)
}

// Inputs returns the hash of what Build would make the environment's image of now. Nothing is pulled: it is
// empty where a base image is missing.
func Inputs(ctx context.Context, b provider.ImageBuilder, e *spec.Environment) (string, error) {
	allowed := *e
	allowed.AllowUnsafe = true // nothing is built
	p, err := newPlan(ctx, &allowed)
	if err != nil {
		return "", err
	}
	ids, err := p.resolve(func(ref string) (provider.Image, bool, error) { return b.FindImage(ctx, ref) })
	if err != nil || ids == nil {
		return "", err
	}
	return p.inputs(ids), nil
}

// BuildSubmission builds a submission's image, and the environment's first, each unless there is one of the
// same inputs. The set-up (commands, then eval_commands) runs while the image is built, as docker.user, in
// one shell: what it does to files stays, what it does to its variables and directory does not. It has the
// spec's network, which is none by default, limits of memory and cores, and time; else it is isolated as
// Docker isolates a build's steps. With fail_fast the first line that fails ends the build, as does an exit
// in any line.
func BuildSubmission(ctx context.Context, b provider.ImageBuilder, e *spec.Environment, s Submission, progress func(tag, step string)) (Built, error) {
	base, err := Build(ctx, b, e, progress)
	if err != nil {
		return Built{}, err
	}
	image, found, err := b.FindImage(ctx, base.ID)
	if err == nil && !found {
		err = &fumehood.Error{Op: "build image " + base.Tags[0], Class: fumehood.ErrInfrastructure, Err: errors.New("it is gone again")}
	}
	if err != nil {
		return Built{}, err
	}
	p, err := newSubmissionPlan(ctx, e, s, image)
	if err != nil {
		return Built{}, err
	}
	mark := provider.ImageMark{Environment: nameOf(e), Inputs: p.inputs(), Base: base.Inputs}
	return ensure(ctx, b, []string{p.tag()}, mark, image.ID, p.steps(), progress)
}

// step is one build: of what the step before it has made, or of a user's Dockerfile.
type step struct {
	provider.ImageBuild
	on      string               // the Dockerfile's lines after FROM; empty for a user's, which is among the trees
	trees   []*buildcontext.Tree // the context
	timeout time.Duration        // 0 means no limit
}

// ensure builds the steps one on the other, the first one on the image base, unless the image is there. The last one
// gets tags and mark.
func ensure(ctx context.Context, b provider.ImageBuilder, tags []string, mark provider.ImageMark, base string, steps []step, progress func(tag, step string)) (Built, error) {
	built := Built{Tags: tags, Inputs: mark.Inputs}
	var err error
	if built.ID, built.UpToDate, err = current(ctx, b, tags, mark); err != nil || built.UpToDate {
		return built, err
	}
	built.ID = base
	for i, s := range steps {
		s.Mark = provider.ImageMark{Environment: mark.Environment}
		if progress != nil {
			s.Progress = func(step string) { progress(tags[0], step) }
		}
		if i == len(steps)-1 {
			s.Tags, s.Mark = tags, mark
		}
		if built.ID, err = s.run(ctx, b, built.ID); err != nil {
			return Built{}, err
		}
	}
	return built, nil
}

// current returns the image that has all the tags and is made of the mark's inputs.
func current(ctx context.Context, b provider.ImageBuilder, tags []string, mark provider.ImageMark) (id string, is bool, err error) {
	for _, tag := range tags {
		image, found, err := b.FindImage(ctx, tag)
		if err != nil || !found || image.Mark != mark || id != "" && image.ID != id {
			return "", false, err
		}
		id = image.ID
	}
	return id, true, nil
}

// run builds the step on the image base.
func (s step) run(ctx context.Context, b provider.ImageBuilder, base string) (id string, err error) {
	late := &fumehood.Error{
		Op: "build image", Class: fumehood.ErrLimit,
		Err: fmt.Errorf("the set-up did not end within %s", s.timeout), Hint: "setup.timeout in the spec is the limit",
	}
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, late)
		defer cancel()
	}
	dockerfile := ""
	if s.on != "" {
		s.Dockerfile, dockerfile = "Dockerfile", "FROM "+base+"\n"+s.on
	}
	err = buildcontext.Send(ctx, s.Dockerfile, dockerfile, s.trees, func(content io.Reader) error {
		s.Context = content
		id, err = b.BuildImage(ctx, s.ImageBuild)
		return err
	})
	if err != nil && errors.Is(context.Cause(ctx), late) {
		err = late
	}
	return id, err
}

// networkOf is the network of a submission's set-up.
func networkOf(e spec.Environment) string {
	network, _ := spec.EffectiveNetworkMode(e.Docker.Network, runtime.GOOS)
	return network
}

// Tags are the names of an environment's image; the first is the one to use. An image is fumehood:NAME. A name that a spec
// chooses could be one that others pull or build on, so that with a build docker.image is a tag only with AllowUnsafe. Without
// that, and without a name, the tag has a hash of docker.image. No name at all is an ErrConfig, as is an environment that is
// not of type docker, or whose docker.image is the very tag that would be built.
func Tags(e *spec.Environment) ([]string, error) {
	op := "build the image of " + e.File
	if e.Type != spec.TypeDocker {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("an environment of type %s has no image", e.Type)}
	}
	var tags []string
	image, name := e.Docker.Image, e.Name
	switch {
	case e.Docker.Build == nil || image == "":
	case e.AllowUnsafe:
		tags = append(tags, image)
	case name == "":
		name = "image-" + buildcontext.HashOf(image)[:12]
	}
	if named := "fumehood:" + name; name != "" && !slices.Contains(tags, named) {
		tags = append(tags, named)
	}
	switch {
	case tags == nil:
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: errors.New("the environment has no name"), Hint: "name it, and its image is fumehood:NAME"}
	case e.Docker.Build == nil && image == tags[0]:
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("%s would be built on itself", tags[0]), Hint: "give docker.image or the environment another name"}
	}
	return tags, nil
}
