package image

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/provider"
)

// Needs returns the images that the services of a project need, in their order, each after those that it is built on, without
// duplicates. builtin is as in Preparer. Needs reads Dockerfiles, and asks no store and no builder.
func Needs(
	ctx context.Context, arch string, sources []Source, opts *fumehood.Compose, builtin func(string) (Source, bool, error),
) ([]provider.NeededImage, error) {
	p := Preparer{Logger: slog.New(slog.DiscardHandler), Builtin: builtin} // what is allowed is logged when it is built
	plan, err := p.plan(ctx, arch, withOptions(sources, opts, provider.PrepareOptions{}))
	if err != nil {
		return nil, err
	}
	wants := map[*node]want{}
	for w, n := range plan.pulls {
		wants[n] = w
	}
	var all []provider.NeededImage
	note := func(i provider.NeededImage) {
		if !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	var add func(n *node, kind provider.NeededKind)
	add = func(n *node, kind provider.NeededKind) {
		if n.build == nil {
			note(wants[n].neededImage(kind, opts.Prebuilt))
			return
		}
		for _, ref := range n.build.dockerfile.Bases {
			add(n.build.on[ref], provider.NeededBase)
		}
		note(provider.NeededImage{Kind: provider.NeededBuild, Ref: n.build.title()})
	}
	for _, s := range sources {
		add(plan.services[s.Service], provider.NeededPull)
	}
	return all, nil
}

// neededImage returns the image as one that a sandbox needs.
func (w want) neededImage(kind provider.NeededKind, prebuilt bool) provider.NeededImage {
	file, _, _ := hostpath.OfImage(w.ref)
	switch {
	case w.ref == "":
		kind = provider.NeededDefault
	case strings.HasPrefix(Familiar(w.ref), BuiltinPrefix):
		kind = provider.NeededBuild
	case prebuilt, w.pull == PullNever, file != "", strings.HasPrefix(w.ref, "docker-daemon:"), strings.HasPrefix(w.ref, "sha256:"):
		kind = provider.NeededLocal
	}
	return provider.NeededImage{Kind: kind, Ref: w.ref, Platform: w.platform}
}

// Has reports whether the store has an image for a platform; "" means any.
func (p *Preparer) Has(ctx context.Context, ref, platform string) (bool, error) {
	found, has, err := p.Store.Find(ctx, ref)
	return has && found.isFor(platform), err
}

// Pull makes sure that the store has an image, as Prepare does. An image for another architecture is an ErrConfig.
func (p *Preparer) Pull(ctx context.Context, ref, platform string) error {
	arch, err := p.Store.Arch(ctx)
	if err != nil {
		return err
	}
	pulled, err := p.fetch(ctx, ref, platform, false)
	if err != nil {
		return err
	}
	return Source{Image: ref, Platform: platform}.CheckArch(pulled, arch)
}

// NotFetched returns the error of an image that is not fetched.
func NotFetched(i provider.NeededImage) error {
	return &fumehood.Error{Op: "fetch image " + i.Ref, Class: fumehood.ErrConfig, Err: errors.New("it is built, or must be there")}
}
