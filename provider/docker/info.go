package docker

import (
	"context"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
)

// info returns what the daemon reports about itself, and asks it once. Use it only for data that no other call returns:
// Engine 20.10 starts three programs for each answer, and hung in its network locks when many providers asked while
// networks changed.
func (p *Provider) info(ctx context.Context) (engine.Info, error) {
	if known := p.cachedInfo(); known != nil {
		return *known, nil
	}
	return image.Share(ctx, &p.infos, "", func(ctx context.Context) (engine.Info, error) {
		info, err := p.engine.Info(ctx)
		if err == nil {
			p.mu.Lock()
			p.daemon = &info
			p.mu.Unlock()
		}
		return info, err
	})
}

// cachedInfo returns the cached result of info, or nil if info was not called yet.
func (p *Provider) cachedInfo() *engine.Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.daemon
}

// holds returns the limits that the daemon enforces. A daemon that runs as root on this machine is not asked: it warns
// about a limit that it does not enforce when a container is created. A rootless one without control groups does not
// warn.
func (p *Provider) holds(ctx context.Context) (engine.Holds, error) {
	if !p.opts.AllowUnenforcedLimits && p.engine.Rootful() {
		return engine.Holds{Memory: true, Swap: true, PIDs: true, CPUs: true}, nil
	}
	info, err := p.info(ctx)
	return info.Holds, err
}
