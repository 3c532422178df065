// Package app implements the commands of `fumehood` as functions of plain inputs and results. Its callers parse
// arguments and print results. Package eval does the same for evaluations.
package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/envimage"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// App holds what all functions need. All fields except AllowLocal are required.
type App struct {
	// Open returns the provider for a name, or for the type of a file. For "docker" that may be another one that runs
	// images.
	Open func(ctx context.Context, provider string) (fumehood.Provider, error)
	// AllowLocal allows a file to select the provider "local", which isolates nothing.
	AllowLocal bool
	// Building is called with each step of an image build.
	Building func(image, step string)
	Logger   *slog.Logger
}

// Described is a sandbox described by flags and files.
type Described struct {
	fumehood.Spec
	Provider    string            // name of its provider
	Environment *spec.Environment // the spec that describes it, whose image may have to be built first; nil if none
}

// openProvider returns the provider for d.
func (a *App) openProvider(ctx context.Context, d Described) (fumehood.Provider, error) {
	if e := d.Environment; e != nil {
		if err := spec.CheckType(e.File, d.Provider, a.AllowLocal); err != nil {
			return nil, err
		}
	}
	return a.Open(ctx, d.Provider)
}

// startSandbox starts the sandbox described by d.
func (a *App) startSandbox(ctx context.Context, p fumehood.Provider, d Described) (fumehood.Sandbox, error) {
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

// ImageBuilder returns the provider as an ImageBuilder, or an ErrUnsupported if it cannot build images.
func ImageBuilder(p fumehood.Provider) (provider.ImageBuilder, error) {
	if b, ok := p.(provider.ImageBuilder); ok {
		return b, nil
	}
	return nil, &fumehood.Error{Op: "build images", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("not supported by provider %s", p.Name())}
}
