package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// startTimeout bounds the wait for the Engine's event after a confirmed start, and for a guest's first message.
const startTimeout = 30 * time.Second

// earlyExitError returns the error for a guest that exited during the start. A guest exits with code 0 if its connection
// ended.
func earlyExitError(state box.State) error {
	err := &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("its main process exited immediately with code %d", state.Exit)}
	if state.Exit == 0 {
		err.Err = fmt.Errorf("%s: %w", box.CutReason, err.Err)
		return box.Lost{Err: err}
	}
	return err
}

// launch starts the containers and waits until they run and their guests answer.
func (s *service) launch(ctx context.Context) error {
	if s.Serves {
		if err := s.Guests.Attach(ctx); err != nil {
			return err
		}
	}
	if s.Hooked {
		owner, err := s.fileOwner(ctx, "")
		if err == nil {
			err = s.sb.p.compose.Start(ctx, s.sb.project, s.Name, owner)
		}
		if err != nil {
			return s.Failure("start", s.portTakenError(err))
		}
	} else {
		for _, c := range s.containers {
			if err := s.sb.p.engine.StartContainer(ctx, c.ID); err != nil {
				return s.Failure("start", s.portTakenError(err))
			}
		}
	}
	began, cancel := context.WithTimeoutCause(ctx, s.sb.p.guestWithin, box.Slow(s.sb.p.guestWithin))
	defer cancel()
	for _, c := range s.containers {
		state, ok := s.sb.p.watch.Until(began, c.ID, func(s box.State) bool { return s.Lives || s.Died })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !ok:
			return s.Failure("start", &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the Engine did not report the start within %v", startTimeout)})
		case s.Serves && state.Died:
			return s.Failure("start", earlyExitError(state))
		}
	}
	if !s.Serves {
		return nil
	}
	if err := s.Guests.Ready(began); err != nil {
		if began.Err() != nil {
			err = s.diagnose(ctx, context.Cause(began), s.Guests.Complaint())
		}
		return s.Failure("start the guest", err)
	}
	return nil
}

// portTakenError makes the error about a port in use an ErrConfig if the service asks for certain ports of the host. If the
// Engine chose the port, it remains an infrastructure failure.
func (s *service) portTakenError(err error) error {
	fixed := slices.ContainsFunc(s.Ports, func(p fumehood.Port) bool { return p.Host != 0 })
	var e *fumehood.Error
	if !fixed || !errors.Is(err, engine.ErrPort) || !errors.As(err, &e) {
		return err
	}
	return &fumehood.Error{Op: e.Op, Class: fumehood.ErrConfig, Err: e.Err, Hint: "free the port, or publish another; the Engine chooses a free one if the host's port is not set"}
}
