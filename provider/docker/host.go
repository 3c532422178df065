package docker

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// host connects to the guests of a service through the Engine.
type host struct{ *service }

var (
	_ box.GuestHost = host{}
	_ box.Relayer   = host{}
	_ box.Counter   = host{}
	_ box.Empowerer = host{}
)

// newGuests returns the manager of a service's guests.
func newGuests(s *service) *box.Guests {
	c := box.GuestConfig{
		Host: host{s}, User: s.info.User, Serves: s.Serves, ID: s.id,
		Sockets: func() string {
			if !s.sb.hasSockets() {
				return ""
			}
			return s.sb.socketsFolder(s.Name)
		},
		SocketDir: compose.SocketDir,
		Look:      func(ctx context.Context, err error) error { return cmp.Or(s.trapped(ctx), s.seen(ctx, err, "")) },
		Trusted:   s.checkUnended,
	}
	if sb := s.sb; sb != nil { // nil if the service is only described
		c.Sandbox, c.Within, c.Ran, c.NoSockets = sb.spec.Name, sb.p.guestWithin, &sb.ran, sb.p.noSockets
		c.Log = sb.p.opts.Logger.With("sandbox", sb.spec.Name, "service", s.Name)
		if !sb.direct() {
			c.Key = sb.key
		}
	}
	return box.NewGuests(c)
}

// Attach connects to the main process.
func (h host) Attach(ctx context.Context) (box.Conn, error) {
	d, err := h.sb.p.engine.Attach(ctx, h.id)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Exec starts a guest by an exec of the Engine.
func (h host) Exec(ctx context.Context, user string) (box.Exec, error) {
	return h.serve(ctx, user, false)
}

// Relay starts a relay by an exec of the Engine.
func (h host) Relay(ctx context.Context, name string) (box.Exec, error) {
	if err := checkUsers(ctx, h.checkRegular); err != nil {
		return nil, err
	}
	e, err := h.sb.p.engine.ExecDuplex(ctx, h.sb.p.watch, h.id, h.info.User, false, h.Guest, "relay", name)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Processes returns the number of the container's processes and threads, and their limit; 0 if there is none.
func (h host) Processes(ctx context.Context) (n, limit uint64, err error) {
	return h.sb.p.engine.Processes(ctx, h.id)
}

// ExecEmpowered starts a guest with all capabilities by an exec of the Engine.
func (h host) ExecEmpowered(ctx context.Context, user string) (box.Exec, error) {
	keep := "--capabilities=" + strconv.FormatUint(h.containers[0].Bounding, 16)
	return h.serve(ctx, user, true, keep)
}

// Powerless returns the error for root without capabilities. It returns nil if err has another cause.
func (h host) Powerless(err error) error {
	if err != nil && !engine.LacksCapabilities(err) {
		return nil
	}
	return h.errPowerless()
}

func (h host) serve(ctx context.Context, user string, privileged bool, args ...string) (box.Exec, error) {
	if err := checkUsers(ctx, h.checkRegular); err != nil {
		return nil, err
	}
	e, err := h.sb.p.engine.ExecDuplex(ctx, h.sb.p.watch, h.id, user, privileged, append([]string{h.Guest, "serve"}, args...)...)
	if err != nil {
		if ctx.Err() != nil {
			err = cmp.Or(h.trapped(ctx), err)
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
	if s.guests.HasEnded(ctx) {
		class = fumehood.ErrBroken // a program that has run since the sandbox was started caused it
	}
	return &fumehood.Error{
		Class: class,
		Err:   errors.New("its container was started again: a program in it may have replaced the guest, so commands there cannot be trusted"),
		Hint:  "keep the service from ending, for example by depends_on with a condition, or have the Engine run the command (--transport engine)",
	}
}

// State returns the container's state according to the Engine's events.
func (h host) State(ctx context.Context, within time.Duration, satisfies func(box.GuestState) bool) box.GuestState {
	state := func(s engine.ContainerState) box.GuestState {
		return box.GuestState{Died: s.Died, Over: over(s), Paused: s.Paused, OOMs: s.OOMs, Ends: s.Alones}
	}
	if satisfies == nil {
		return state(h.sb.p.watch.State(h.id))
	}
	return state(h.sb.p.watch.Await(ctx, h.id, within, func(s engine.ContainerState) bool { return satisfies(state(s)) }))
}

// over reports whether a container has died or was removed.
func over(s engine.ContainerState) bool { return s.Died || !s.Started }

// Death returns how the container died.
func (h host) Death(ctx context.Context) box.Death {
	err := h.death(ctx)
	return box.Death{Err: err, OutOfMemory: err != nil && h.diedOfMemory()}
}
