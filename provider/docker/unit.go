package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// unit is a container of a service. Guests run in the first one.
type unit struct {
	*service
	n int
}

var (
	_ box.Unit      = unit{}
	_ box.Relayer   = unit{}
	_ box.Counter   = unit{}
	_ box.Empowerer = unit{}
)

// newGuests returns what manages a service's guests.
func newGuests(s *service) *box.Guests {
	c := box.GuestConfig{
		Unit: s.Units[0], User: s.Info.User, Serves: s.Serves, ID: s.id,
		Sockets: func() string {
			if !s.sb.hasSockets() {
				return ""
			}
			return s.sb.socketsFolder(s.Name)
		},
		SocketDir: compose.SocketDir,
		Look: func(ctx context.Context, err error) error {
			return cmp.Or(s.recheckUsers(ctx), s.diagnose(ctx, err, ""))
		},
		Trusted: s.checkUnended,
		Sandbox: s.sb.Spec.Name, Within: s.sb.p.guestWithin, Ran: &s.sb.Ran, NoSockets: s.sb.p.noSockets,
		Log: s.sb.p.opts.Logger.With("sandbox", s.sb.Spec.Name, "service", s.Name),
	}
	if !s.sb.direct() {
		c.Key = s.sb.Key
	}
	return box.NewGuests(c)
}

// Attach connects to the main process.
func (u unit) Attach(ctx context.Context) (box.Conn, error) {
	d, err := u.sb.p.engine.Attach(ctx, u.id)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Exec starts a guest by an exec of the Engine.
func (u unit) Exec(ctx context.Context, user string) (box.Exec, error) {
	return u.serve(ctx, user, false)
}

// Relay starts a relay by an exec of the Engine.
func (u unit) Relay(ctx context.Context, name string) (box.Exec, error) {
	if err := checkUsers(ctx, u.checkRegular); err != nil {
		return nil, err
	}
	e, err := u.sb.p.engine.ExecDuplex(ctx, u.sb.p.watch, u.id, u.Info.User, false, u.Guest, "relay", name)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Processes returns the number of the container's processes and threads, and their limit; 0 if there is none.
func (u unit) Processes(ctx context.Context) (n, limit uint64, err error) {
	return u.sb.p.engine.Processes(ctx, u.id)
}

// ExecEmpowered starts a guest with all capabilities by an exec of the Engine.
func (u unit) ExecEmpowered(ctx context.Context, user string) (box.Exec, error) {
	keep := "--capabilities=" + strconv.FormatUint(u.containers[0].Bounding, 16)
	return u.serve(ctx, user, true, keep)
}

// Powerless returns the error for root without capabilities. It returns nil if err has another cause.
func (u unit) Powerless(err error) error {
	if err != nil && !engine.LacksCapabilities(err) {
		return nil
	}
	return u.errPowerless()
}

func (u unit) serve(ctx context.Context, user string, privileged bool, args ...string) (box.Exec, error) {
	if err := checkUsers(ctx, u.checkRegular); err != nil {
		return nil, err
	}
	e, err := u.sb.p.engine.ExecDuplex(ctx, u.sb.p.watch, u.id, user, privileged, append([]string{u.Guest, "serve"}, args...)...)
	if err != nil {
		if ctx.Err() != nil {
			err = cmp.Or(u.recheckUsers(ctx), err)
		}
		return nil, err
	}
	return e, nil
}

// checkUnended rejects a guest in a container that has exited and was started again. The program that ran in it may
// have placed links where the Engine mounts files, including the Engine's own such as /etc/hosts. Through them it may
// have had another program mounted over the guest.
func (s *service) checkUnended(ctx context.Context) error {
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil || !state.Ended {
		return err
	}
	class := fumehood.ErrUnsupported
	if s.Guests.HasEnded() {
		class = fumehood.ErrBroken // a program that has run since the sandbox was started caused it
	}
	return &fumehood.Error{
		Class: class,
		Err:   errors.New("its container was started again: a program in it may have replaced the guest, so commands there cannot be trusted"),
		Hint:  "keep the service from ending, for example by depends_on with a condition, or have the Engine run the command (--transport engine)",
	}
}

// container returns the container as it was created.
func (u unit) container() engine.State { return u.containers[u.n] }

// State returns the container's state according to the Engine's events.
func (u unit) State() box.State { return u.sb.p.watch.State(u.container().ID) }

// Until waits for the Engine's events of the container.
func (u unit) Until(ctx context.Context, wanted func(box.State) bool) (box.State, bool) {
	return u.sb.p.watch.Until(ctx, u.container().ID, wanted)
}

// Death returns how the container died.
func (u unit) Death(ctx context.Context) box.Death {
	err := u.death(ctx)
	return box.Death{Err: err, OutOfMemory: err != nil && u.diedOfMemory()}
}

// Check describes the health check.
func (u unit) Check() *box.Check { return (*box.Check)(u.container().Check) }

// Restarts reports whether the Engine has restarted the container after its death.
func (u unit) Restarts(ctx context.Context) bool {
	state, err := u.sb.p.engine.Inspect(ctx, u.container().ID)
	return err == nil && state.Running
}

// Evidence returns what the Engine has kept of the last check and log.
func (u unit) Evidence(ctx context.Context, lines int) (check, log string) {
	if now, err := u.sb.p.engine.Inspect(ctx, u.container().ID); err == nil {
		check = now.Found
	}
	return check, u.sb.p.engine.LastLog(ctx, u.container(), lines)
}

// Addresses returns the addresses of the container's networks.
func (u unit) Addresses(ctx context.Context) ([]netip.Addr, error) {
	if u.Direct {
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errNoForwards}
	}
	state, err := u.sb.p.engine.Inspect(ctx, u.container().ID)
	return state.Addresses, err
}

// Stop kills the container's main process, and thereby all other processes.
func (u unit) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.sb.p.opts.speedup.Of(removeTimeout))
	defer cancel()
	return u.sb.p.engine.StopContainer(ctx, u.container().ID)
}

// Pause pauses the container.
func (u unit) Pause(ctx context.Context) (paused bool, err error) {
	paused, err = u.sb.p.engine.Pause(ctx, u.container().ID)
	if err == nil {
		return paused, nil
	}
	if holds, herr := u.sb.p.holds(ctx); herr == nil && holds == (engine.Holds{}) {
		err = &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the daemon has no control groups to freeze with: %w", err)}
	}
	return true, err // it may be paused
}

// Resume resumes the container.
func (u unit) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.sb.p.opts.speedup.Of(removeTimeout))
	defer cancel()
	return u.sb.p.engine.Unpause(ctx, u.container().ID)
}
