// Package app has what the commands of `fumehood` do, as functions of plain inputs and results. Who calls them parses what people
// type, and prints. Package eval does so for evaluations.
package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/envimage"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/spec"
)

// App is what all functions need. All fields are needed, but for AllowLocal.
type App struct {
	// Open returns the provider of a name: "docker", or "local".
	Open func(ctx context.Context, provider string) (fumehood.Provider, error)
	// AllowLocal lets a file choose the provider "local", which isolates nothing.
	AllowLocal bool
	// Building is told each step of a build.
	Building func(image, step string)
	Logger   *slog.Logger
}

// Described is a sandbox as flags and files describe it.
type Described struct {
	fumehood.Spec
	Provider    string            // which one starts it
	Environment *spec.Environment // where an environment spec describes it, whose image may have to be built first; else nil
}

// open returns the provider of what was described.
func (a *App) open(ctx context.Context, d Described) (fumehood.Provider, error) {
	if e := d.Environment; e != nil {
		if err := spec.CheckType(e.File, d.Provider, a.AllowLocal); err != nil {
			return nil, err
		}
	}
	return a.Open(ctx, d.Provider)
}

// start starts what was described.
func (a *App) start(ctx context.Context, p fumehood.Provider, d Described) (fumehood.Sandbox, error) {
	e := d.Environment
	if e != nil && e.Type == spec.TypeDocker && e.Docker.Build != nil && d.Image == e.WithDefaults().Docker.Image {
		b, err := ImageBuilder(p)
		if err != nil {
			return nil, err
		}
		built, err := envimage.Build(ctx, b, e, a.Building)
		if err != nil {
			return nil, err
		}
		d.Image = built.ID
	}
	return p.Start(ctx, d.Spec)
}

// ImageBuilder returns a provider as one that builds images. The error is an ErrUnsupported.
func ImageBuilder(p fumehood.Provider) (provider.ImageBuilder, error) {
	if b, ok := p.(provider.ImageBuilder); ok {
		return b, nil
	}
	return nil, &fumehood.Error{Op: "build images", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s has none", p.Name())}
}
