package memory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox.
type sandbox struct {
	box.Sandbox
	p         *Provider
	container *container // nil before it exists
}

var (
	_ box.Body         = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
)

// Prepare has nothing to do, since there are no images.
func (sb *sandbox) Prepare(context.Context) error { return nil }

// Admit admits all sandboxes.
func (sb *sandbox) Admit(context.Context) (started, left func(), err error) { return nil, nil, nil }

// Make makes the container, with its marks first, and starts it.
func (sb *sandbox) Make(ctx context.Context) (err error) {
	end := sb.Rec.Phase("start")
	defer func() { end(err) }()
	marks := sb.Marks()
	marks[owner.LabelOwner] = sb.p.self.String()
	if sb.container, err = sb.p.engine.create(sb.Spec, marks); err != nil {
		return err
	}
	sb.connect(sb.container)
	return sb.StartServices(ctx, sb.p.life.Log)
}

// startWithin bounds the start of a guest, which normally takes some milliseconds.
const startWithin = 30 * time.Second

// connect makes the service of the sandbox's container, whose guests this process may use from then on.
func (sb *sandbox) connect(c *container) {
	s := &box.Service{Service: compose.Service{Name: c.info.Name, Serves: true}, Info: c.info, Units: []box.Unit{unit{c}}}
	_, s.Term = c.spec.Env["TERM"]
	s.Guests = box.NewGuests(box.GuestConfig{
		Unit: unit{c}, Sandbox: c.name, Serves: true, Key: sb.Key, ID: c.name, Within: startWithin, Ran: &sb.Ran, Log: sb.p.life.Log,
	})
	s.Forwards = box.NewPorts(s.Guests.Own, sb.p.life.Log)
	s.Launch = func(ctx context.Context) error {
		if dir, err := os.Stat(c.info.Dir); err != nil || !dir.IsDir() {
			return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("no directory %s", c.info.Dir)}
		}
		if err := c.start(); err != nil {
			return err
		}
		if err := s.Guests.Attach(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, startWithin, box.Slow(startWithin))
		defer cancel()
		return s.Guests.Ready(ctx)
	}
	sb.Services = []*box.Service{s}
}

// Remove removes the container.
func (sb *sandbox) Remove(context.Context) error {
	sb.Disconnect()
	if sb.container == nil {
		return nil
	}
	return sb.p.engine.remove(sb.container)
}

// Leave closes the connections to a kept sandbox.
func (sb *sandbox) Leave() { sb.Disconnect() }

// unit is a container.
type unit struct{ *container }

var (
	_ box.Unit    = unit{}
	_ box.Relayer = unit{}
)

// Attach returns the connection to the first process, which was started with it.
func (u unit) Attach(context.Context) (box.Conn, error) { return u.main.Load(), nil }

// Exec starts a guest as a user.
func (u unit) Exec(_ context.Context, user string) (box.Exec, error) {
	return u.exec(user, "serve", "--no-cgroup")
}

// Relay starts a relay to a resident guest.
func (u unit) Relay(_ context.Context, name string) (box.Exec, error) {
	return u.exec("", "relay", name)
}

// State reports whether the first process runs. Nothing else can happen to it.
func (u unit) State() (now box.State) {
	if main := u.main.Load(); main != nil {
		select {
		case <-main.ended:
		default:
			now.Lives = true
		}
	}
	return now
}

// Until waits until the state is as wanted.
func (u unit) Until(ctx context.Context, wanted func(box.State) bool) (box.State, bool) {
	if now := u.State(); wanted(now) {
		return now, true
	}
	select {
	case <-u.main.Load().ended:
	case <-ctx.Done():
	}
	now := u.State()
	if !wanted(now) && ctx.Err() == nil {
		<-ctx.Done() // nothing happens after its end
	}
	return now, wanted(now)
}

// Death returns how the first process ended, unless it runs.
func (u unit) Death(context.Context) box.Death {
	if u.State().Lives {
		return box.Death{}
	}
	return box.Death{Err: &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox has ended")}}
}

// Check returns nil: there are no health checks.
func (u unit) Check() *box.Check { return nil }

// Restarts returns false: there is no program to restart.
func (u unit) Restarts(context.Context) bool { return false }

// Evidence returns nothing.
func (u unit) Evidence(context.Context, int) (check, log string) { return "", "" }

// Addresses returns none: programs use the host's network, whose loopback address is always tried.
func (u unit) Addresses(context.Context) ([]netip.Addr, error) { return nil, nil }

// Stop kills everything in the container.
func (u unit) Stop(context.Context) error {
	u.kill()
	return nil
}

// Pause is an ErrUnsupported.
func (u unit) Pause(context.Context) (paused bool, err error) {
	return false, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("the memory provider cannot freeze processes")}
}

// Resume has nothing to do.
func (u unit) Resume(context.Context) error { return nil }
