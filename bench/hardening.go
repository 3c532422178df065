package main

import (
	"context"
	"errors"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// idle is the main process of the other contenders' containers. Every image with a shell has it.
var idle = []string{"tail", "-f", "/dev/null"}

// hardening is what a container of ours is held by, so that the others' can be held by the same: limits,
// capabilities, network, log. The guest's volume is not in it; nobody else needs one.
type hardening struct{ container.HostConfig }

// hardeningOf asks the Engine what a sandbox of ours has, rather than to repeat here what the provider
// does: so the comparison stays fair when that changes. The start is the first one of this process, too,
// which makes the guest's volume where there is none yet.
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
	of := info.Container.HostConfig
	if of == nil {
		return h, errors.New("the Engine does not tell the sandbox's configuration")
	}
	h.Resources = container.Resources{
		Memory: of.Memory, MemorySwap: of.MemorySwap, NanoCPUs: of.NanoCPUs, PidsLimit: of.PidsLimit,
	}
	h.CapAdd, h.CapDrop, h.SecurityOpt = of.CapAdd, of.CapDrop, of.SecurityOpt
	h.NetworkMode, h.LogConfig, h.ReadonlyRootfs = of.NetworkMode, of.LogConfig, of.ReadonlyRootfs
	return h, nil
}
