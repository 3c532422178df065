package engine

import (
	"context"
	"time"

	"github.com/moby/moby/client"
)

// createTimeout bounds the creation of one object.
const createTimeout = 2 * time.Minute

// creator is the Engine's client with two changes to how objects are created.
type creator struct{ client.APIClient }

// Creator makes the end of a context prevent creations, and never interrupt one: the Engine would go on, and
// we would not know of what it made. And the standard input of guests ends with the connection of the host
// that attached to them, so that a guest learns at once that its host has died. Compose has no word for that.
func Creator(api client.APIClient) client.APIClient { return creator{api} }

// creating is the context of one creation.
func creating(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	return ctx, cancel, nil
}

// ContainerCreate creates a container.
func (c creator) ContainerCreate(ctx context.Context, opts client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	ctx, cancel, err := creating(ctx)
	if err != nil {
		return client.ContainerCreateResult{}, err
	}
	defer cancel()
	if opts.Config != nil && opts.Config.Labels[LabelMain] == MainGuest {
		opts.Config.StdinOnce = true
	}
	return c.APIClient.ContainerCreate(ctx, opts)
}

// NetworkCreate creates a network.
func (c creator) NetworkCreate(ctx context.Context, name string, opts client.NetworkCreateOptions) (client.NetworkCreateResult, error) {
	ctx, cancel, err := creating(ctx)
	if err != nil {
		return client.NetworkCreateResult{}, err
	}
	defer cancel()
	return c.APIClient.NetworkCreate(ctx, name, opts)
}

// VolumeCreate creates a volume.
func (c creator) VolumeCreate(ctx context.Context, opts client.VolumeCreateOptions) (client.VolumeCreateResult, error) {
	ctx, cancel, err := creating(ctx)
	if err != nil {
		return client.VolumeCreateResult{}, err
	}
	defer cancel()
	return c.APIClient.VolumeCreate(ctx, opts)
}
