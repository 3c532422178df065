package box

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// In a kept sandbox, the guest of each service's own user is a resident. A resident and its detached commands outlive
// the process that started it. The resident is the main process if that is ours. Otherwise the first process that needs
// it starts it. Other users that have detached commands have residents too.
//
// Later processes connect to a unix socket of the resident: on the same machine to the published one, see publish,
// otherwise, if the Unit is a Relayer, by a relay in the sandbox to an abstract one. Each side proves to the other that it knows the sandbox's
// key. A process that can read the key can run commands in the sandbox anyway. Code in the sandbox cannot read it. The
// relay, which code in the sandbox could tamper with, never sees it.

// residence returns the socket name of a user's resident guest, and the secret that the guest and its hosts prove to
// know. An empty user is the service's own. Containers may share a network and with it the socket names, so the name is
// not predictable without the key. Each guest has its own secret, because a relay may be led to another guest's socket.
func (m *Guests) residence(user string) (name string, secret []byte) {
	id := " " + m.cfg.ID
	if user != "" {
		id += " " + user
	}
	derive := func(purpose string) []byte {
		mac := hmac.New(sha256.New, m.key)
		_, _ = io.WriteString(mac, purpose+id) // it never fails
		return mac.Sum(nil)
	}
	return "fumehood-" + hex.EncodeToString(derive("residence")[:16]), derive("secret")
}

// reside makes a guest that this process has started the resident.
func (m *Guests) reside(ctx context.Context, g *host.Guest) error {
	name, secret := m.residence("")
	if err := g.Reside(ctx, name, secret, 0); err != nil {
		return m.explainLost(ctx, err)
	}
	return nil
}

// errNobody is returned if there is no resident guest.
var errNobody error = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("no resident guest")}

// meetings is how often meet looks for the resident guest and tries to start it. Another process may start one at the
// same time.
const meetings = 3

// meet connects to a user's resident guest. If no guest exists and it is not the main process, meet starts one. The new
// guest kills the processes left by a dead one; zero if none is known.
func (m *Guests) meet(ctx context.Context, user string, dead wire.Swept) (*guest, error) {
	for range meetings {
		g, err := m.find(ctx, user)
		if !errors.Is(err, errNobody) {
			return g, err
		}
		if m.cfg.Serves && user == "" && m.cfg.Key == nil {
			return nil, err
		}
		if m.cfg.Serves && user == "" {
			return nil, &fumehood.Error{
				Class: fumehood.ErrUnavailable, Err: errors.New("guest not reachable: sandbox still starting, or its container was started again"),
				Hint: "remove it with `fumehood down " + m.cfg.Sandbox + "` and start a new one",
			}
		}
		g, err = m.settle(ctx, user, dead)
		if !errors.Is(err, host.ErrTaken) {
			return g, err
		}
	}
	return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the resident guest keeps ending")}
}

// find connects to a user's resident guest. It returns errNobody if no guest exists.
func (m *Guests) find(ctx context.Context, user string) (*guest, error) {
	relayer, ok := m.cfg.Unit.(Relayer)
	if !ok {
		g, err := m.listening(ctx, user)
		if errors.Is(err, errNobody) && m.cfg.Serves && user == "" { // the main process has ended, or is about to
			await(ctx, m.cfg.Unit, DeathWait, func(s State) bool { return !s.Lives })
		}
		return g, err
	}
	within, cancel := context.WithTimeoutCause(ctx, directWithin, Slow(directWithin))
	defer cancel()
	g, err := m.direct(within, user)
	if err == nil {
		return g, nil
	}
	m.cfg.Log.Debug("a resident guest is reached through the daemon only", "user", user, "error", err)
	return m.relayTo(ctx, relayer, user)
}

// greet makes sure that a resident guest answers.
func (m *Guests) greet(ctx context.Context, met *host.Guest) (*guest, error) {
	err := met.Ready(ctx)
	var swept wire.Swept
	if err == nil {
		swept, err = met.Sweep(ctx, nil, wire.Swept{})
	}
	if err != nil {
		met.Close()
		return nil, err
	}
	return &guest{Guest: met, swept: swept}, nil
}

// relayTo connects to a user's resident guest by a relay. It returns errNobody if no guest exists.
func (m *Guests) relayTo(ctx context.Context, relayer Relayer, user string) (*guest, error) {
	r := &relays{m: m, relayer: relayer, user: user, conn: wire.NewLasting()}
	if err := r.carry(ctx); err != nil {
		return nil, err
	}
	g, err := m.greet(ctx, host.NewLasting(r.conn))
	if err != nil {
		return nil, Saying(m.explainLost(ctx, err), r.Complaint())
	}
	m.holding.Go(func() { r.hold(context.WithoutCancel(ctx)) })
	g.exec, g.relayed = r, true
	return g, nil
}

// settle starts a guest and makes it the user's resident; see meet.
func (m *Guests) settle(ctx context.Context, user string, dead wire.Swept) (*guest, error) {
	c := m.begin(nil)
	var err error
	if c.guest, err = m.launch(ctx, cmp.Or(user, m.cfg.User), dead); err != nil {
		return nil, err
	}
	name, secret := m.residence(user)
	if err := c.guest.Reside(ctx, name, secret, 0); err != nil {
		return nil, c.failStart(ctx, err)
	}
	if err := m.publish(ctx, c.guest.Guest, user); err != nil { // code in the sandbox may have interfered
		m.cfg.Log.Debug("later processes reach a guest through the daemon only", "user", user, "error", err)
	}
	return c.guest, nil
}

// keeper returns the guest that keeps detached commands.
func (m *Guests) keeper(ctx context.Context) (*host.Guest, error) {
	if m.cfg.Key == nil {
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("only guests of kept sandboxes keep detached commands"),
			Hint: "keep the sandbox, as `fumehood up` does",
		}
	}
	return m.Own(ctx)
}

// detach starts a command that outlives this process.
func (m *Guests) detach(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (provider.ProcessBackend, error) {
	m.cfg.Ran.Store(true)
	d := detached{}
	d.alone, d.depart = m.attend()
	var err error
	if cmd.User != "" && cmd.User != m.cfg.User {
		d.DetachedBackend, err = m.detachAs(ctx, cmd, out)
	} else {
		d.DetachedBackend, err = m.callKeeper(ctx, func(g *host.Guest) (*host.Detached, error) { return g.Detach(ctx, cmd, 0, out) })
	}
	if err != nil {
		d.depart()
		return nil, err
	}
	return d, nil
}

// detached is a detached command that this process has started.
type detached struct {
	provider.DetachedBackend
	alone  func() bool
	depart func()
}

// Wait returns how the command ended.
func (d detached) Wait(ctx context.Context) (provider.Exit, error) {
	exit, err := d.DetachedBackend.Wait(ctx)
	exit.Alone = exit.Alone && d.alone()
	d.depart()
	return exit, err
}

// Detached lists the service's detached commands.
func (m *Guests) Detached(ctx context.Context) ([]provider.DetachedInfo, error) {
	g, err := m.keeper(ctx)
	if err != nil {
		return nil, err
	}
	all, err := g.Detached(ctx)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	return m.ofOthers(ctx, g, all)
}

// Join attaches to a detached command.
func (m *Guests) Join(ctx context.Context, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	g, err := m.keeper(ctx)
	if err != nil {
		return nil, err
	}
	if info.User != "" {
		return m.joinAs(ctx, g, info, out)
	}
	p, err := g.Join(ctx, info, out)
	if err != nil {
		return nil, m.explainLost(ctx, err)
	}
	return p, nil
}
