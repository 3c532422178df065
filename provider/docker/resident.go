package docker

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
	"github.com/fumehood/fumehood/internal/wire/client"
)

// In a kept sandbox the guest of each service's own user is a resident: it outlives the process that has
// started it, and its detached commands do so too. It is the main process where that is ours; else the first who
// needs it starts it by an exec. Other users, by whom commands are detached, have residents beside it. Later processes reach it by an exec of a relay, which connects them with an
// abstract unix socket, and each side proves to the other that it knows the sandbox's key. That is a label: who
// can read it can run commands by the Engine anyway, on whatever machine the daemon is, and what runs in the
// sandbox can not. The relay, which such could tamper with, never sees it.

var _ fumehood.Rejoiner = (*service)(nil)

// residence is the name of the socket of a user's resident guest, and what that guest and its hosts prove to know; empty is the
// service's own user. Containers may share a network, and so the names in it: nobody without the key can foresee this one.
// Each guest has a secret of its own, for a relay may be led to another one's socket.
func (g *guests) residence(user string) (name string, secret []byte) {
	what := " " + g.svc.id
	if user != "" {
		what += " " + user
	}
	of := func(purpose string) []byte {
		mac := hmac.New(sha256.New, g.svc.sb.key)
		_, _ = io.WriteString(mac, purpose+what) // it never fails
		return mac.Sum(nil)
	}
	return "fumehood-" + hex.EncodeToString(of("residence")[:16]), of("secret")
}

// reside makes a guest that this process has started the resident.
func (g *guests) reside(ctx context.Context, guest *client.Guest) error {
	name, secret := g.residence("")
	if err := guest.Reside(ctx, name, secret); err != nil {
		return g.explain(ctx, err)
	}
	return nil
}

// errNobody says that there is no resident guest.
var errNobody = errors.New("there is no resident guest")

// meetings is how often the resident guest is looked for, and started where there is none: another process
// may start one at the same time.
const meetings = 3

// meet connects to a user's resident guest, which it starts where there is none and it is not the main process. One that
// it starts kills what the commands of another have left that began at since and has died; 0 where none is known.
func (g *guests) meet(ctx context.Context, user string, since uint64) (*client.Guest, wire.Swept, error) {
	for range meetings {
		guest, swept, err := g.relayed(ctx, user)
		if !errors.Is(err, errNobody) {
			return guest, swept, err
		}
		if g.svc.Serves && user == "" {
			return nil, swept, &fumehood.Error{
				Class: fumehood.ErrUnavailable, Err: errors.New("nobody listens in the sandbox: its start is not over, or others have started its container again"),
				Hint: "remove it with `fumehood down " + g.svc.sb.spec.Name + "` and start a new one",
			}
		}
		guest, swept, err = g.settle(ctx, user, since)
		if !errors.Is(err, client.ErrTaken) {
			return guest, swept, err
		}
	}
	return nil, wire.Swept{}, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the resident guest comes and goes")}
}

// relayed connects to a user's resident guest by a relay. The error is an errNobody where there is none.
func (g *guests) relayed(ctx context.Context, user string) (_ *client.Guest, swept wire.Swept, _ error) {
	name, secret := g.residence(user)
	rw, err := g.svc.sb.p.engine.ExecDuplex(ctx, g.svc.sb.p.watch, g.svc.id, g.svc.info.User, g.svc.Guest, "relay", name)
	if err != nil {
		return nil, swept, err
	}
	guest, err := client.Meet(ctx, rw, secret)
	if err == nil {
		if err = guest.Ready(ctx); err == nil {
			swept, err = guest.Sweep(ctx, nil, 0)
		}
		if err == nil {
			return guest, swept, nil
		}
		guest.Close()
		return nil, swept, saying(g.explain(ctx, err), rw.Complaint())
	}
	var exit fumehood.Exit
	var werr error
	if errors.Is(err, io.EOF) { // the relay has ended, and tells why
		exit, werr = rw.Wait(ctx)
	}
	_ = rw.Close()
	if exit.Outcome == fumehood.Exited && exit.Code == wire.NobodyListens {
		return nil, swept, errNobody
	}
	return nil, swept, errors.Join(saying(g.explain(ctx, err), rw.Complaint()), werr)
}

// settle starts a guest by an exec and makes it the user's resident, see meet.
func (g *guests) settle(ctx context.Context, user string, since uint64) (*client.Guest, wire.Swept, error) {
	c := g.svc.begin(nil)
	var err error
	if c.guest, err = g.launch(ctx, cmp.Or(user, g.svc.info.User), since); err != nil {
		return nil, wire.Swept{}, err
	}
	name, secret := g.residence(user)
	if err := c.guest.guest.Reside(ctx, name, secret); err != nil {
		return nil, wire.Swept{}, c.failed(ctx, err)
	}
	return c.guest.guest, c.guest.swept, nil
}

// keeper returns the guest that keeps detached commands.
func (g *guests) keeper(ctx context.Context) (*client.Guest, error) {
	if g.svc.sb.direct() || g.svc.sb.key == nil {
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("only guests of kept sandboxes keep detached commands"),
			Hint: "set Keep in the sandbox's spec, or start it by `fumehood up`",
		}
	}
	return g.own(ctx)
}

// detach starts a command that outlives this process.
func (g *guests) detach(ctx context.Context, cmd fumehood.Cmd, out fumehood.Sink) (fumehood.ProcessBackend, error) {
	g.svc.sb.ran.Store(true)
	if cmd.User != "" && cmd.User != g.svc.info.User {
		return g.detachAs(ctx, cmd, out)
	}
	guest, err := g.keeper(ctx)
	if err != nil {
		return nil, err
	}
	p, err := guest.Detach(ctx, cmd, 0, out)
	if err != nil {
		return nil, g.explain(ctx, err)
	}
	return p, nil
}

// Detached lists the service's detached commands.
func (s *service) Detached(ctx context.Context) ([]fumehood.DetachedInfo, error) {
	guest, err := s.guests.keeper(ctx)
	if err != nil {
		return nil, err
	}
	all, err := guest.Detached(ctx)
	if err != nil {
		return nil, s.guests.explain(ctx, err)
	}
	return s.guests.ofOthers(ctx, guest, all)
}

// Join looks at a detached command.
func (s *service) Join(ctx context.Context, info fumehood.DetachedInfo, out fumehood.Sink) (fumehood.DetachedBackend, error) {
	guest, err := s.guests.keeper(ctx)
	if err != nil {
		return nil, err
	}
	if info.User != "" {
		return s.guests.joinAs(ctx, guest, info, out)
	}
	p, err := guest.Join(ctx, info, out)
	if err != nil {
		return nil, s.guests.explain(ctx, err)
	}
	return p, nil
}
