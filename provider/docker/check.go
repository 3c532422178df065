package docker

import (
	"context"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider"
)

var (
	_ provider.Checker  = (*sandbox)(nil)
	_ provider.Measurer = (*Provider)(nil)
)

// Check inspects each container and reports whether it is still in the state that the start waited for: running and not
// unhealthy, or exited with code 0. A sandbox that is a single container with a guest is not inspected, because its
// guest has to answer anyway. With the engine transport it is inspected, because the Engine also reads files of exited
// containers.
func (sb *sandbox) Check(ctx context.Context) error {
	if sb.Spec.Compose == nil && !sb.direct() {
		return nil
	}
	var all []engine.State
	for _, s := range sb.services {
		all = append(all, s.containers...)
	}
	return box.InParallel(len(all), func(i int) error {
		st, err := sb.p.engine.Inspect(ctx, all[i].ID)
		switch {
		case err != nil:
			return err
		case st.Running && st.Health == box.Unhealthy:
			err = fmt.Errorf("%s has become unhealthy", st.Name)
		case !st.Running && (i == 0 || st.ExitCode != 0): // commands run in the first one
			err = fmt.Errorf("%s has ended with code %d", st.Name, st.ExitCode)
		}
		if err != nil {
			return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
		}
		return nil
	})
}

// Machine returns the CPUs and memory of the daemon's machine.
func (p *Provider) Machine(ctx context.Context) (provider.Machine, error) {
	info, err := p.engine.Info(ctx)
	if err != nil {
		return provider.Machine{}, err
	}
	return provider.Machine{CPUs: info.CPUs, Memory: info.Memory}, nil
}
