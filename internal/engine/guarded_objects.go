package engine

import (
	"context"

	"github.com/moby/moby/client"
)

// NetworkList lists networks.
func (g *guarded) NetworkList(ctx context.Context, opts client.NetworkListOptions) (client.NetworkListResult, error) {
	return do(ctx, g, callNetworkList, "", func(ctx context.Context) (client.NetworkListResult, error) {
		return g.APIClient.NetworkList(ctx, opts)
	})
}

// NetworkInspect describes a network.
func (g *guarded) NetworkInspect(ctx context.Context, id string, opts client.NetworkInspectOptions) (client.NetworkInspectResult, error) {
	return do(ctx, g, callNetworkInspect, id, func(ctx context.Context) (client.NetworkInspectResult, error) {
		return g.APIClient.NetworkInspect(ctx, id, opts)
	})
}

// NetworkCreate creates a network. After an unclear failure the one of that name is taken for it where it has our
// labels.
func (g *guarded) NetworkCreate(ctx context.Context, name string, opts client.NetworkCreateOptions) (client.NetworkCreateResult, error) {
	opts.Labels = g.secret.seal(Network, name, opts.Labels)
	create := func(ctx context.Context) (client.NetworkCreateResult, error) {
		return g.APIClient.NetworkCreate(ctx, name, opts)
	}
	find := func(ctx context.Context) (client.NetworkCreateResult, bool, error) {
		res, err := g.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
		return client.NetworkCreateResult{ID: res.Network.ID}, err == nil && sameOwn(opts.Labels, res.Network.Labels), err
	}
	return adopted(ctx, g, callNetworkCreate, name, opts.Labels, create, find)
}

// NetworkRemove removes a network.
func (g *guarded) NetworkRemove(ctx context.Context, id string, opts client.NetworkRemoveOptions) (client.NetworkRemoveResult, error) {
	return do(ctx, g, callNetworkRemove, id, func(ctx context.Context) (client.NetworkRemoveResult, error) {
		return g.APIClient.NetworkRemove(ctx, id, opts)
	})
}

// NetworkConnect connects a container to a network.
func (g *guarded) NetworkConnect(ctx context.Context, id string, opts client.NetworkConnectOptions) (client.NetworkConnectResult, error) {
	return do(ctx, g, callNetworkConnect, id, func(ctx context.Context) (client.NetworkConnectResult, error) {
		return g.APIClient.NetworkConnect(ctx, id, opts)
	})
}

// NetworkDisconnect disconnects a container from a network.
func (g *guarded) NetworkDisconnect(ctx context.Context, id string, opts client.NetworkDisconnectOptions) (client.NetworkDisconnectResult, error) {
	return do(ctx, g, callNetworkDisconnect, id, func(ctx context.Context) (client.NetworkDisconnectResult, error) {
		return g.APIClient.NetworkDisconnect(ctx, id, opts)
	})
}

// VolumeList lists volumes.
func (g *guarded) VolumeList(ctx context.Context, opts client.VolumeListOptions) (client.VolumeListResult, error) {
	return do(ctx, g, callVolumeList, "", func(ctx context.Context) (client.VolumeListResult, error) {
		return g.APIClient.VolumeList(ctx, opts)
	})
}

// VolumeInspect describes a volume.
func (g *guarded) VolumeInspect(ctx context.Context, id string, opts client.VolumeInspectOptions) (client.VolumeInspectResult, error) {
	return do(ctx, g, callVolumeInspect, id, func(ctx context.Context) (client.VolumeInspectResult, error) {
		return g.APIClient.VolumeInspect(ctx, id, opts)
	})
}

// VolumeCreate creates a volume, or finds the one of that name.
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
	return do(ctx, g, callVolumeRemove, id, func(ctx context.Context) (client.VolumeRemoveResult, error) {
		return g.APIClient.VolumeRemove(ctx, id, opts)
	})
}
