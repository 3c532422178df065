package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// Sweep makes the guest kill the processes that another guest's commands left after that guest died. user is the dead
// guest's user id; nil means this guest's own. dead is what the dead guest reported about itself; zero if none has died.
func (g *Guest) Sweep(ctx context.Context, user *int, dead wire.Swept) (wire.Swept, error) {
	var swept wire.Swept
	if err := g.ask(ctx, wire.Request{Sweep: &wire.Sweep{User: user, Since: dead.Began, PID: dead.PID}}, &swept); err != nil {
		return wire.Swept{}, err
	}
	if swept.PID > 0 && swept.Began == 0 { // it does not find itself
		return wire.Swept{}, &fumehood.Error{
			Class: fumehood.ErrBroken, Err: errors.New("the guest of this user cannot read /proc: programs in the sandbox have changed the permissions of a directory above it"),
		}
	}
	if swept.User < 0 || swept.Survivors < 0 || swept.PID < 0 || swept.Began == 0 {
		return wire.Swept{}, protocolError("invalid answer to a sweep")
	}
	return swept, nil
}

// KillAll makes the guest kill all processes of its container, as wire.KillAll describes. It returns how many could not be
// killed.
func (g *Guest) KillAll(ctx context.Context) (survivors int, err error) {
	within, cancel := context.WithTimeoutCause(ctx, killWithin, fmt.Errorf("no answer within %v", killWithin))
	defer cancel()
	var answer wire.KilledAll
	s, err := g.roundTrip(within, wire.Request{KillAll: &wire.KillAll{}}, &answer)
	switch {
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return 0, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: context.Cause(within)}
	case err != nil:
		return 0, err
	}
	s.Close()
	if answer.Survivors < 0 {
		return 0, protocolError("invalid answer to a kill")
	}
	return answer.Survivors, nil
}
