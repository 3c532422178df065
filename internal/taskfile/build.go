package taskfile

import (
	"context"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/envimage"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// building is an environment spec whose image must be built.
type building struct {
	env   *spec.Environment
	specs []*fumehood.Spec // the sandboxes that use it
	ids   []string         // ids of their samples
}

// needs records that a sample's sandbox uses an environment.
func (e environment) needs(id string, s *fumehood.Spec) {
	if e.building != nil {
		e.building.specs = append(e.building.specs, s)
		e.building.ids = append(e.building.ids, id)
	}
}

// build builds the images of the environment specs, and sets them in the sandboxes by id.
func (f *File) build(ctx context.Context, p fumehood.Provider, progress func(tag, step string)) error {
	for _, b := range f.buildings {
		b.env.Exclude = f.secrets.Exclude(b.ids)
		builder, ok := p.(provider.ImageBuilder)
		if !ok {
			return &fumehood.Error{Op: "build images", Path: b.env.File, Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s cannot build images", p.Name())}
		}
		built, err := envimage.Build(ctx, builder, b.env, progress)
		if err != nil {
			return err
		}
		for _, s := range b.specs {
			s.Image = built.ID
		}
	}
	return nil
}
