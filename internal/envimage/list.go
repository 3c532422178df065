package envimage

import (
	"context"
	"errors"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// State reports whether an image is what would be built now.
type State string

// The states.
const (
	Current    State = "up to date"
	Outdated   State = "outdated"        // its inputs have changed, or another image has taken its tags
	Unfinished State = "unfinished"      // a running build may use it
	Unknown    State = "not looked into" // no spec is known for it, or a base image is missing
)

// unfinished is how long an image without inputs may belong to a running build.
const unfinished = time.Hour

// Listed is an image of an environment.
type Listed struct {
	provider.Image
	State State
}

// List lists the images of an environment, or of all environments if e is nil, newest first. A submission's image is
// up to date if its environment's image would be built from the same inputs.
func List(ctx context.Context, b provider.ImageBuilder, e *spec.Environment) ([]Listed, error) {
	name, inputs := "", ""
	if e != nil {
		var err error
		if inputs, err = Inputs(ctx, b, e); err != nil {
			return nil, err
		}
		name = nameOf(e)
	}
	images, err := b.Images(ctx)
	if err != nil {
		return nil, err
	}
	var listed []Listed
	for _, image := range images {
		if e == nil || image.Mark.Environment == name {
			listed = append(listed, Listed{image, stateOf(image, inputs, time.Now())})
		}
	}
	return listed, nil
}

// nameOf returns the name of an environment in marks.
func nameOf(e *spec.Environment) string {
	if e.Name == "" {
		return e.Docker.Image
	}
	return e.Name
}

// stateOf compares an image with the current inputs of its environment; empty inputs are unknown.
func stateOf(image provider.Image, inputs string, now time.Time) State {
	switch {
	case len(image.Tags) > 0 && inputs == "":
		return Unknown
	case len(image.Tags) > 0 && image.Mark.Base == inputs:
		return Current
	case len(image.Tags) == 0 && image.Mark.Inputs == "" && now.Sub(image.Created) < unfinished:
		return Unfinished
	}
	return Outdated
}

// Pruned is an image that Prune has checked.
type Pruned struct {
	Listed
	Remove  bool // to be removed
	Removed bool // removed
}

// Prune removes the outdated images of an environment, or of all environments if e is nil. With all it also removes
// the others, which may make a running build fail. Images that a container uses are kept. It returns all images that
// it has checked. With dryRun it removes nothing.
func Prune(ctx context.Context, b provider.ImageBuilder, e *spec.Environment, all, dryRun bool) ([]Pruned, error) {
	listed, err := List(ctx, b, e)
	if err != nil {
		return nil, err
	}
	pruned := make([]Pruned, len(listed))
	var errs []error
	for i, l := range listed {
		p := Pruned{Listed: l, Remove: !l.InUse && (l.State == Outdated || all)}
		if p.Remove && !dryRun {
			switch err := b.RemoveImage(ctx, l.Image); {
			case err == nil:
				p.Removed = true
			case errors.Is(err, fumehood.ErrUnavailable): // a container has started to use it
				p.Remove, p.InUse = false, true
			default:
				errs = append(errs, err)
			}
		}
		pruned[i] = p
	}
	return pruned, errors.Join(errs...)
}
