package image

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
)

// plan describes where the images of a project come from.
type plan struct {
	arch     string
	services map[string]*node
	pulls    map[want]*node
	builds   []*node          // in build order: each after its base images
	names    map[string]*node // the builds, by the names of their images
}

// node is an image that a project needs. It is either pulled or built.
type node struct {
	image Image         // no ID while the store does not have it
	users []string      // the services that need it
	build *build        // nil if the image is pulled
	built chan struct{} // closed when the build has ended; nil before the builds begin
}

// want identifies an image that is not built.
type want struct {
	ref, platform string
	pull          string
	age           time.Duration
}

// plan reads the Dockerfiles and plans where images come from. It does not contact the store.
func (p *Preparer) plan(ctx context.Context, arch string, sources []Source) (*plan, error) {
	plan := &plan{arch: arch, services: map[string]*node{}, pulls: map[want]*node{}, names: map[string]*node{}}
	for _, s := range sources {
		if s.Build != nil {
			n, err := p.planBuild(ctx, plan, s)
			if err != nil {
				return nil, err
			}
			plan.services[s.Service] = n
		}
	}
	for _, s := range sources {
		n, err := plan.services[s.Service], error(nil)
		if n == nil {
			n, err = p.planImage(ctx, plan, want{s.Image, s.Platform, s.Pull, s.Age}, s.Service, nil)
		}
		if err == nil {
			err = p.planBases(ctx, plan, n)
		}
		if err != nil {
			return nil, err
		}
		plan.services[s.Service] = n
	}
	return plan, nil
}

func (p *Preparer) planBuild(ctx context.Context, plan *plan, s Source) (*node, error) {
	b, err := p.newBuild(ctx, plan.arch, s)
	if err != nil {
		return nil, InService(err, s.Service)
	}
	n := &node{build: b}
	for _, name := range b.names {
		plan.names[name] = n
	}
	return n, nil
}

// planImage returns the node of a reference: another build of the project, a built-in image, or an image to pull. user
// is the build that refers to it; if its image has the same name as its base, the base is pulled.
func (p *Preparer) planImage(ctx context.Context, plan *plan, w want, service string, user *node) (*node, error) {
	n := plan.names[Familiar(w.ref)]
	if n != nil && n != user {
		return n, nil
	}
	s, is, err := p.builtin(w.ref)
	switch {
	case err != nil:
		return nil, InService(err, service)
	case is && n == nil:
		return p.planBuild(ctx, plan, s)
	}
	if n = plan.pulls[w]; n == nil {
		n = &node{}
		plan.pulls[w] = n
	}
	n.users = append(n.users, service)
	return n, nil
}

// planBases adds a build's base images to the plan, and then the build itself.
func (p *Preparer) planBases(ctx context.Context, plan *plan, n *node) error {
	b := n.build
	if b == nil || slices.Contains(plan.builds, n) {
		return nil
	}
	if b.on != nil {
		return &fumehood.Error{Op: "build image", Service: b.source.Service, Class: fumehood.ErrConfig, Err: errors.New("cyclic image dependency")}
	}
	b.on = map[string]*node{}
	for _, ref := range b.dockerfile.Bases {
		w := want{ref: ref, platform: b.source.Platform, pull: PullMissing}
		if b.source.Build.Pull {
			w.pull = PullAlways
		}
		on, err := p.planImage(ctx, plan, w, b.source.Service, n)
		if err == nil {
			err = p.planBases(ctx, plan, on)
		}
		if err != nil {
			return err
		}
		b.on[ref] = on
	}
	plan.builds = append(plan.builds, n)
	return nil
}
