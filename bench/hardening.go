package main

import (
	"context"
	"errors"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// idle is the command of the main process in the other contenders' containers. Every image with a shell has tail.
var idle = []string{"tail", "-f", "/dev/null"}

// hardening is the configuration of a Fumehood container that the other contenders copy: limits, capabilities,
// network, log. It excludes the guest's volume, which only Fumehood needs.
type hardening struct{ container.HostConfig }

// hardeningOf asks the Engine for the configuration of a Fumehood sandbox. Repeating the provider's code here would
// make the comparison unfair when that code changes. This start is also the first one of the process; it creates the
// guest's volume if that doesn't exist yet.
func hardeningOf(ctx context.Context, api *client.Client, o *oursContender) (h hardening, err error) {
	sb, err := o.sandbox(ctx)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, sb.Close(ctx)) }()
	info, err := api.ContainerInspect(ctx, sb.ServiceInfo().Container, client.ContainerInspectOptions{})
	if err != nil {
		return h, err
	}
	host := info.Container.HostConfig
	if host == nil {
		return h, errors.New("the Engine does not report the sandbox's configuration")
	}
	h.Resources = container.Resources{
		Memory: host.Memory, MemorySwap: host.MemorySwap, NanoCPUs: host.NanoCPUs, PidsLimit: host.PidsLimit,
	}
	h.CapAdd, h.CapDrop, h.SecurityOpt = host.CapAdd, host.CapDrop, host.SecurityOpt
	h.NetworkMode, h.LogConfig, h.ReadonlyRootfs = host.NetworkMode, host.LogConfig, host.ReadonlyRootfs
	return h, nil
}
