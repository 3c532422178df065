package docker

import (
	"context"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// ensureImage makes sure that the daemon has the image. If the daemon already has it, no request is sent to a registry.
// Concurrent starts of sandboxes with the same missing image cause one pull. A built-in image is built if it is missing
// or out of date.
func (p *Provider) ensureImage(ctx context.Context, ref string) (engine.Image, error) {
	source, is, err := p.builtin(ref)
	if err != nil {
		return engine.Image{}, err
	}
	if is {
		built, err := p.prepare(ctx, []image.Source{source}, &fumehood.Compose{}, provider.PrepareOptions{})
		return built[source.Service].Image, err
	}
	return p.pull(ctx, ref, "", false)
}

// pull fetches an image, once for all concurrent callers. It retries if a registry is busy or broken. platform has the
// form "linux/arm64"; empty means the daemon's platform. If always is set, pull asks the registry even if the daemon
// has the image by now.
func (p *Provider) pull(ctx context.Context, ref, platform string, always bool) (engine.Image, error) {
	return shared(ctx, &p.pulls, fmt.Sprintf("%s %s %t", ref, platform, always), func(ctx context.Context) (engine.Image, error) {
		img, found, err := p.engine.Image(ctx, ref)
		if err != nil || found && !always && isFor(img, platform) {
			return img, err
		}
		auth, err := p.compose.Auth(ref)
		if err != nil {
			return engine.Image{}, err
		}
		err = image.Limited(ctx, "pull", 0, func(ctx context.Context) error {
			return p.patiently(ctx, func() error {
				return p.engine.Pull(ctx, ref, platform, auth, p.opts.Progress)
			})
		})
		if err != nil {
			return engine.Image{}, err
		}
		img, found, err = p.engine.Image(ctx, ref)
		if err == nil && !found {
			err = &fumehood.Error{Op: "pull image " + ref, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("image missing after a successful pull")}
		}
		return img, err
	})
}
