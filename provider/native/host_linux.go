//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// host connects to the guests of a service.
type host struct{ *service }

var _ box.GuestHost = host{}

// startWithin bounds the start of a guest, which normally takes some milliseconds.
const startWithin = 30 * time.Second

func newGuests(s *service) *box.Guests {
	return box.NewGuests(box.GuestConfig{
		Host: host{s}, Sandbox: s.sb.name, User: s.config.User, Serves: true, Within: startWithin,
		Key: s.sb.key, ID: s.sb.folder + " " + s.info.Name,
		Look:    func(_ context.Context, err error) error { return err },
		Trusted: func(context.Context) error { return nil }, // nothing in the sandbox can replace the guest
		Sockets: s.sockets, SocketDir: setup.SocketDir, NoSockets: func(err error) { s.deaf = err },
		CountsOOMs: !s.cgroup.has("memory"), Ran: &s.sb.ran, Log: s.sb.p.log.With("sandbox", s.sb.name),
	})
}

// Attach returns the connection to the first process.
func (h host) Attach(context.Context) (box.Conn, error) { return h.init, nil }

// Exec starts a guest as a user.
func (h host) Exec(ctx context.Context, user string) (box.Exec, error) { return h.join(ctx, user) }

// poll is how often State looks at the counters of the control group, which send no events.
const poll = 5 * time.Millisecond

// State returns what has happened to the sandbox.
func (h host) State(ctx context.Context, within time.Duration, satisfies func(box.GuestState) bool) box.GuestState {
	now := h.now()
	if satisfies == nil || satisfies(now) {
		return now
	}
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-deadline.C:
			return now
		case <-tick.C:
		}
		if now = h.now(); satisfies(now) {
			return now
		}
	}
}

func (h host) now() box.GuestState {
	ended := h.init.over()
	paused := h.frozen.Load() || h.sb.kept.Load() && h.cgroup.frozen()
	return box.GuestState{Died: ended, Over: ended, Paused: paused, OOMs: h.kills()}
}

// kills returns the number of out-of-memory kills.
func (h host) kills() int { return max(h.cgroup.ooms(), int(h.ooms.Load())) }

// Death returns how the first process ended, unless it runs. Only the kernel and the host can kill it.
func (h host) Death(context.Context) box.Death {
	if !h.init.over() {
		return box.Death{}
	}
	killed, how := h.init.fate()
	if (killed || h.oci != nil && h.oci.gvisor) && // the end of any of gVisor's processes ends the sandbox
		h.kills() > h.before && !h.isClosed() {
		return box.Death{OutOfMemory: true, Err: &fumehood.Error{
			Class: fumehood.ErrBroken, Err: errors.New("the sandbox has ended: the out-of-memory killer killed its first process"),
			Hint: "use less memory, or raise the limit",
		}}
	}
	if killed && h.oci == nil { // no process in the sandbox can do that
		how += ", killed from outside"
	}
	class := fumehood.ErrUnavailable
	if h.oci != nil && h.oci.gvisor && h.sb.ran.Load() && !h.isClosed() { // root may kill process 1 there, and too many processes end gVisor itself
		class = fumehood.ErrBroken
	}
	return box.Death{Err: &fumehood.Error{Class: class, Err: errors.New("the sandbox has ended" + how)}}
}
