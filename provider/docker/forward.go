package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
)

// forwardAll forwards the ports that the project asks for, because the Engine publishes no ports on internal networks.
// It includes the ports of services that have completed, because these count as ready.
func (s *service) forwardAll(ctx context.Context) error {
	if len(s.Service.Forward) == 0 {
		return nil
	}
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return err
	}
	for _, p := range s.Service.Forward {
		if _, err := s.forwards.Listen(ctx, p, state.Addresses...); err != nil {
			return s.Failure("forward ports", err)
		}
	}
	return nil
}

// Forward listens on a port of the host and forwards to a port of the service.
func (s *service) Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error) {
	if s.sb.direct() {
		return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errNoForwards}
	}
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return fumehood.Port{}, err
	}
	if !state.Running {
		return fumehood.Port{}, state.Unavailable()
	}
	return s.forwards.Listen(ctx, p, state.Addresses...)
}

var errNoForwards = errors.New("ports of internal networks need the guest, which this transport does not use")

// checkForwards rejects ports that cannot be forwarded, before anything is created.
func (sb *sandbox) checkForwards(services []compose.Service) error {
	for _, s := range services {
		if len(s.Forward) > 0 && sb.direct() {
			return &fumehood.Error{
				Op: fmt.Sprintf("forward port %d", s.Forward[0].Container), Service: s.Name, Class: fumehood.ErrUnsupported,
				Err:  errNoForwards,
				Hint: "remove the port, or set x-fumehood: {egress: internet}",
			}
		}
	}
	return nil
}
