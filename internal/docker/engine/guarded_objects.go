package engine

import (
	"context"

	"github.com/moby/moby/client"
)

// NetworkList lists networks.
func (g *guarded) NetworkList(ctx context.Context, opts client.NetworkListOptions) (client.NetworkListResult, error) {
	return ask(ctx, g, callNetworkList, g.APIClient.NetworkList, opts)
}

// NetworkInspect describes a network.
func (g *guarded) NetworkInspect(ctx context.Context, id string, opts client.NetworkInspectOptions) (client.NetworkInspectResult, error) {
	return about(ctx, g, callNetworkInspect, g.APIClient.NetworkInspect, id, opts)
}

// NetworkCreate creates a network. After an unclear failure it adopts an existing network of that name if that has
// our labels.
func (g *guarded) NetworkCreate(ctx context.Context, name string, opts client.NetworkCreateOptions) (client.NetworkCreateResult, error) {
	opts.Labels = g.secret.seal(Network, name, opts.Labels)
	create := func(ctx context.Context) (client.NetworkCreateResult, error) {
		return g.APIClient.NetworkCreate(ctx, name, opts)
	}
	find := func(ctx context.Context) (client.NetworkCreateResult, bool, error) {
		res, err := g.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
		return client.NetworkCreateResult{ID: res.Network.ID}, err == nil && sameOwn(opts.Labels, res.Network.Labels), err
	}
	return createOrAdopt(ctx, g, callNetworkCreate, name, opts.Labels, create, find)
}

// NetworkRemove removes a network.
func (g *guarded) NetworkRemove(ctx context.Context, id string, opts client.NetworkRemoveOptions) (client.NetworkRemoveResult, error) {
	return about(ctx, g, callNetworkRemove, g.APIClient.NetworkRemove, id, opts)
}

// NetworkConnect connects a container to a network.
func (g *guarded) NetworkConnect(ctx context.Context, id string, opts client.NetworkConnectOptions) (client.NetworkConnectResult, error) {
	return about(ctx, g, callNetworkConnect, g.APIClient.NetworkConnect, id, opts)
}

// NetworkDisconnect disconnects a container from a network.
func (g *guarded) NetworkDisconnect(ctx context.Context, id string, opts client.NetworkDisconnectOptions) (client.NetworkDisconnectResult, error) {
	return about(ctx, g, callNetworkDisconnect, g.APIClient.NetworkDisconnect, id, opts)
}

// VolumeList lists volumes.
func (g *guarded) VolumeList(ctx context.Context, opts client.VolumeListOptions) (client.VolumeListResult, error) {
	return ask(ctx, g, callVolumeList, g.APIClient.VolumeList, opts)
}

// VolumeInspect describes a volume.
func (g *guarded) VolumeInspect(ctx context.Context, id string, opts client.VolumeInspectOptions) (client.VolumeInspectResult, error) {
	return about(ctx, g, callVolumeInspect, g.APIClient.VolumeInspect, id, opts)
}

// VolumeCreate creates a volume, or returns the existing one of that name.
func (g *guarded) VolumeCreate(ctx context.Context, opts client.VolumeCreateOptions) (client.VolumeCreateResult, error) {
	c := callVolumeCreate
	opts.Labels = g.secret.seal(Volume, opts.Name, opts.Labels)
	if opts.Name == "" {
		c.again = never
	}
	return do(ctx, g, c, opts.Name, func(ctx context.Context) (client.VolumeCreateResult, error) {
		return g.APIClient.VolumeCreate(ctx, opts)
	})
}

// VolumeRemove removes a volume.
func (g *guarded) VolumeRemove(ctx context.Context, id string, opts client.VolumeRemoveOptions) (client.VolumeRemoveResult, error) {
	return about(ctx, g, callVolumeRemove, g.APIClient.VolumeRemove, id, opts)
}
