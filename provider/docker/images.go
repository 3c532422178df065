package docker

import (
	"context"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
)

// ensureImage makes sure that the daemon has the image. One that it has causes no request to a registry;
// many sandboxes of one that it has not cause one pull. One that ships with the library is built where it is not
// there as it should be.
func (p *Provider) ensureImage(ctx context.Context, ref string) (engine.Image, error) {
	if source, is := p.builtin(ref); is {
		built, err := p.prepare(ctx, []compose.Source{source}, &fumehood.Compose{}, nil)
		return built[source.Service].Image, err
	}
	return p.pull(ctx, ref, "", false)
}

// pull fetches an image, once for all who want it at the same time. What a busy or broken registry refuses is
// tried again. platform is as "linux/arm64"; empty means the daemon's. With always it is asked for even if it is
// there by now.
func (p *Provider) pull(ctx context.Context, ref, platform string, always bool) (engine.Image, error) {
	return shared(ctx, &p.pulls, fmt.Sprintf("%s %s %t", ref, platform, always), func(ctx context.Context) (engine.Image, error) {
		image, found, err := p.engine.Image(ctx, ref)
		if err != nil || found && !always && isFor(image, platform) {
			return image, err
		}
		auth, err := p.compose.Auth(ref)
		if err != nil {
			return engine.Image{}, err
		}
		err = p.patiently(ctx, func() error {
			return p.engine.Pull(ctx, ref, platform, auth, func(s engine.PullProgress) {
				p.opts.Progress(Progress{Image: s.Image, Layer: s.ID, Status: s.Status, Current: s.Current, Total: s.Total})
			})
		})
		if err != nil {
			return engine.Image{}, err
		}
		image, found, err = p.engine.Image(ctx, ref)
		if err == nil && !found {
			err = &fumehood.Error{Op: "pull image " + ref, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the daemon has pulled it and does not have it")}
		}
		return image, err
	})
}
