// Package envimage builds the images of environment specs. It determines the inputs of an image and whether they have
// changed; a provider.ImageBuilder does the build.
//
// An environment's image is its docker.image, or the result of its docker.build, with the spec's variables and its
// working directory. A submission's image additionally has a workspace, static assets and the effects of the
// evaluation's setup. Such an image can be evaluated where folders of this machine cannot be mounted.
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
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// Submission describes what a submission's image has in addition to the environment's.
type Submission struct {
	// Workspace is the folder with the content of the working directory. Required.
	Workspace string
	// Assets is a folder whose content is copied below spec.StaticDir. Empty means none.
	Assets string
	// Tag is the image's name. Empty means fumehood:NAME-submission-HASH, from the environment's name and a hash of
	// the inputs.
	Tag string
}

// Built describes an image returned by Build.
type Built struct {
	ID       string
	Tags     []string // the first is the one to use
	Inputs   string   // a hash of all inputs
	UpToDate bool     // the image existed with the same inputs, so nothing was built
}

// Build builds an environment's image, unless an image with the same inputs exists. The inputs are the base images as
// the builder has them; the build's context without ignored files, and its arguments; variables, working directory
// and user. progress receives each step; nil disables progress reports.
//
// Files that a Dockerfile's steps download are not inputs: to run the steps again, remove the image. Base images are
// pulled only if they are missing, and not to look for newer ones.
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

// Inputs returns the hash of the current inputs of the environment's image; see Build. It pulls nothing: the hash is
// empty if a base image is missing.
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

// BuildSubmission builds a submission's image, and before it the environment's. Each is built only if no image with
// the same inputs exists. The setup (commands, then eval_commands) runs during the build, as docker.user, in one
// shell. Its changes to files persist, those to variables and the working directory do not.
//
// The setup has the spec's network (by default no network), and the spec's limits of memory, CPUs and time.
// Otherwise it has the isolation of any build step in Docker. With fail_fast, the first entry that fails ends the
// build. An exit in any entry ends the setup, and with a code other than 0 the build too.
func BuildSubmission(ctx context.Context, b provider.ImageBuilder, e *spec.Environment, s Submission, progress func(tag, step string)) (Built, error) {
	base, err := Build(ctx, b, e, progress)
	if err != nil {
		return Built{}, err
	}
	image, found, err := b.FindImage(ctx, base.ID)
	if err == nil && !found {
		err = &fumehood.Error{Op: "build image " + base.Tags[0], Class: fumehood.ErrInfrastructure, Err: errors.New("it was removed during the build")}
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

// step is one build: on the result of the previous step, or of a user's Dockerfile.
type step struct {
	provider.ImageBuild
	// on has the Dockerfile's lines after FROM; it is empty for a user's Dockerfile, which is in the context.
	on      string
	trees   []*image.Tree // the context
	timeout time.Duration // 0 means no limit
}

// ensure builds the steps, each on the result of the previous one and the first one on the image base, unless the
// image exists. The result of the last step gets tags and mark.
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
		if built.ID, err = s.buildStep(ctx, b, built.ID); err != nil {
			return Built{}, err
		}
	}
	return built, nil
}

// current returns the image that has all the tags and the mark.
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

// buildStep builds the step on the image base.
func (s step) buildStep(ctx context.Context, b provider.ImageBuilder, base string) (id string, err error) {
	late := &fumehood.Error{
		Op: "build image", Class: fumehood.ErrLimit,
		Err: fmt.Errorf("the setup did not end within %s", s.timeout), Hint: "raise setup.timeout in the spec",
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
	err = image.Send(ctx, s.Dockerfile, dockerfile, s.trees, func(content io.Reader) error {
		s.Context = content
		id, err = b.BuildImage(ctx, s.ImageBuild)
		return err
	})
	if err != nil && errors.Is(context.Cause(ctx), late) {
		err = late
	}
	return id, err
}

// networkOf returns the network of a submission's setup.
func networkOf(e spec.Environment) string {
	network, _ := spec.EffectiveNetworkMode(e.Docker.Network, runtime.GOOS)
	return network
}

// Tags returns the names of an environment's image; the first is the one to use. The name is fumehood:NAME. With a
// build, docker.image is a tag only if AllowUnsafe is set: a spec could choose a name that others pull or build on.
// Without AllowUnsafe and without a name, the tag contains a hash of docker.image.
//
// The error is an ErrFile if the environment has no name at all, is not of type docker, or if docker.image is the
// tag to be built.
func Tags(e *spec.Environment) ([]string, error) {
	op := "build the image of " + e.File
	if e.Type != spec.TypeDocker {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrFile, Err: fmt.Errorf("an environment of type %s has no image", e.Type)}
	}
	var tags []string
	ref, name := e.Docker.Image, e.Name
	switch {
	case e.Docker.Build == nil || ref == "":
	case e.AllowUnsafe:
		tags = append(tags, ref)
	case name == "":
		name = "image-" + image.HashOf(ref)[:12]
	}
	if named := "fumehood:" + name; name != "" && !slices.Contains(tags, named) {
		tags = append(tags, named)
	}
	switch {
	case tags == nil:
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrFile, Err: errors.New("the environment has no name"), Hint: "set a name: the image becomes fumehood:NAME"}
	case e.Docker.Build == nil && ref == tags[0]:
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrFile, Err: fmt.Errorf("%s would be built on itself", tags[0]), Hint: "give docker.image or the environment another name"}
	}
	return tags, nil
}
