package docker

import (
	"cmp"
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Preparer = (*Provider)(nil)

// ImageKey returns a hash of where the images of a spec's services come from.
func (p *Provider) ImageKey(ctx context.Context, spec fumehood.Spec) (string, error) {
	if err := spec.Validate(); err != nil {
		return "", err
	}
	spec.Image = cmp.Or(spec.Image, p.opts.DefaultImage)
	return image.Key(spec, func() (*compose.Project, error) { return box.LoadProject(ctx, spec, nil) })
}

// Prepare pulls or builds the images of a spec's services, and makes the guest volume.
func (p *Provider) Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	const op = "prepare images"
	if spec.Compose == nil {
		spec.Image = cmp.Or(spec.Image, p.opts.DefaultImage)
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := p.checkNetwork(ctx, spec); err != nil {
		return nil, err
	}
	if _, err := p.checkMounts(spec); err != nil {
		return nil, err
	}
	sb := &sandbox{Sandbox: box.Sandbox{Spec: spec, Rec: provider.NewRecorder(&spec)}, p: p, preparing: opts}
	err := sb.Prepare(ctx)
	if err == nil && !opts.BuildOnly {
		_, err = p.ensureGuest(ctx, sb.arch)
	}
	if err != nil {
		return nil, box.MaskError(spec.Compose, box.Within(ctx, op, err))
	}
	return sb.ids, nil
}
