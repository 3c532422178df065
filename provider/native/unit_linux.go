//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// unit is a service: its namespaces, with the guest and the service's own program in them.
type unit struct{ *service }

var _ box.Unit = unit{}

// startWithin bounds the start of a guest, which normally takes some milliseconds.
const startWithin = 30 * time.Second

// newGuests returns what manages the guests. It trusts them: nothing in the sandbox can replace a guest.
func newGuests(s *service) *box.Guests {
	return box.NewGuests(box.GuestConfig{
		Unit: s.Units[0], Sandbox: s.sb.Spec.Name, User: s.config.User, Serves: true, Within: startWithin,
		Key: s.sb.Key, ID: s.sb.folder + " " + s.Info.Name,
		Sockets: s.sockets, SocketDir: setup.SocketDir, NoSockets: func(err error) { s.deaf = err },
		CountsOOMs: !s.cgroup.has("memory"), Ran: &s.sb.Ran, Log: s.sb.p.log.With("sandbox", s.sb.Spec.Name),
	})
}

// Attach returns the connection to the first process.
func (u unit) Attach(context.Context) (box.Conn, error) { return u.init, nil }

// Exec starts a guest as a user.
func (u unit) Exec(ctx context.Context, user string) (box.Exec, error) { return u.join(ctx, user) }

// State returns what has happened to the service.
func (u unit) State() box.State {
	now, _ := u.now()
	return now
}

// now returns the state too, and a channel that is closed when the program's part changes.
func (u unit) now() (now box.State, changed <-chan struct{}) {
	now, changed = u.main.Now()
	now.Lives, now.Paused = !u.init.over(), u.frozen.Load() || u.sb.Kept() && u.cgroup.frozen()
	now.OOMs, now.Before = u.kills(), u.before
	return now, changed
}

// poll is how often Until looks at the counters of the control group, which send no events. Beside a program, whose changes
// are signaled, it looks less and less often, up to slowPoll.
const poll, slowPoll = 5 * time.Millisecond, 80 * time.Millisecond

// Until waits until the state is as wanted.
func (u unit) Until(ctx context.Context, wanted func(box.State) bool) (box.State, bool) {
	pause := poll
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		now, changed := u.now()
		if wanted(now) {
			return now, true
		}
		select {
		case <-changed:
		case <-tick.C:
			if changed != nil && pause < slowPoll {
				pause *= 2
				tick.Reset(pause)
			}
		case <-ctx.Done():
			now = u.State() // both may have happened
			return now, wanted(now)
		}
	}
}

// Check describes the health check of the service's own program.
func (u unit) Check() *box.Check { return u.main.Check() }

// Restarts reports whether the program is started again.
func (u unit) Restarts(context.Context) bool { return u.main.Restarts() }

// Evidence returns the result of the last health check, and the end of the program's output.
func (u unit) Evidence(_ context.Context, lines int) (check, log string) {
	return u.main.Evidence(lines)
}

// Addresses returns the address of the sandbox in its network, if it has one.
func (u unit) Addresses(context.Context) (all []netip.Addr, err error) {
	if u.config.Resolver.IsValid() {
		all = append(all, address)
	}
	return all, nil
}

// Stop kills everything that runs in the service.
func (u unit) Stop(ctx context.Context) error { return u.stop(ctx) }

// Pause suspends all processes.
func (u unit) Pause(ctx context.Context) (paused bool, err error) {
	if !u.cgroup.has("freezer") {
		return false, noFreezer()
	}
	return true, u.freeze(ctx, cgroups.Frozen)
}

// Resume resumes all processes.
func (u unit) Resume(ctx context.Context) error { return u.freeze(ctx, cgroups.Thawed) }

// kills returns the number of out-of-memory kills.
func (u unit) kills() int { return max(u.cgroup.ooms(), int(u.ooms.Load())) }

// Death returns how the first process ended, unless it runs. Only the kernel and the host can kill it.
func (u unit) Death(context.Context) box.Death {
	if !u.init.over() {
		return box.Death{}
	}
	killed, how := u.init.fate()
	if (killed || u.oci != nil && u.oci.gvisor) && // the end of any of gVisor's processes ends the sandbox
		u.kills() > u.before && !u.isClosed() {
		return box.Death{OutOfMemory: true, Err: &fumehood.Error{
			Class: fumehood.ErrBroken, Err: errors.New("the sandbox has ended: the out-of-memory killer killed its first process"),
			Hint: "use less memory, or raise the limit",
		}}
	}
	if killed && u.oci == nil { // no process in the sandbox can do that
		how += ", killed from outside"
	}
	class := fumehood.ErrUnavailable
	if u.oci != nil && u.oci.gvisor && u.sb.Ran.Load() && !u.isClosed() { // root may kill process 1 there, and too many processes end gVisor itself
		class = fumehood.ErrBroken
	}
	return box.Death{Err: &fumehood.Error{Class: class, Err: errors.New("the sandbox has ended" + how)}}
}
