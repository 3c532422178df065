package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// guests are the guests in a service: the main process, where it serves, for the service's own user; and
// one more, started by an exec, for each other user, so that the Engine resolves user, groups and HOME.
type guests struct {
	svc *service

	sockets atomic.Int64 // how many were made

	main *client.Guest
	wire *engine.Duplex // the main process's connection

	mu     sync.Mutex
	byUser map[string]*userGuest
	dead   map[string]*userGuest // by user: guests that have died, and were not swept after yet
	closed bool

	residing  sync.Mutex            // held while a resident of another user is being met
	residents map[string]*userGuest // by user: those of others than the service's own
}

// userGuest is a guest that was started, or is being started, by an exec.
type userGuest struct {
	giveUp  context.CancelCauseFunc // ends the start, where it is under way
	started chan struct{}           // closed when guest or err is set
	guest   *client.Guest
	exec    *engine.ExecStream // by which it was started; nil of one that was there
	swept   wire.Swept         // what it told of itself
	err     error
}

// began is when the guest was started, in ticks since boot; 0 of none.
func (u *userGuest) began() uint64 {
	if u == nil {
		return 0
	}
	return u.swept.Began
}

// attach connects to the main process, which is not started yet.
func (g *guests) attach(ctx context.Context) error {
	var err error
	if g.wire, err = g.svc.sb.p.engine.Attach(context.WithoutCancel(ctx), g.svc.id); err != nil {
		return err
	}
	g.main = client.New(g.wire)
	return nil
}

// ready waits until the main process answers.
func (g *guests) ready(ctx context.Context) error {
	if err := g.main.Ready(ctx); err != nil {
		return g.early(ctx, err)
	}
	return nil
}

// slow is the error of a guest that has not answered within its time.
func slow(within time.Duration) error {
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest does not answer after %v, which is the limit", within)}
}

// errClosed ends the start of a guest.
var errClosed error = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}

// early explains an error about the main process during its start.
func (g *guests) early(ctx context.Context, err error) error {
	lost := g.main.Lost()
	if err = g.explain(ctx, err); lost {
		return lostGuest{err}
	}
	return err
}

// deathWait bounds the wait for the Engine's report of a death that the end of a stream has shown. A busy Engine takes
// seconds.
const deathWait = 5 * time.Second

// saying adds to an error about a guest what that wrote to its standard error, without the stacks of a Go runtime that was
// denied threads or memory.
func saying(err error, complaint string) error {
	complaint, _, _ = strings.Cut(complaint, "\n\nruntime stack:")
	if complaint = strings.TrimSpace(complaint); complaint == "" {
		return err
	}
	return fmt.Errorf("%w; it says: %s", err, complaint)
}

// explain adds to an error about a lost guest what the Engine and the guest say.
func (g *guests) explain(ctx context.Context, err error) error {
	if !errors.Is(err, fumehood.ErrUnavailable) {
		return err
	}
	if g.main != nil && g.main.Lost() {
		g.svc.sb.p.watch.Await(ctx, g.svc.id, deathWait, over)
		<-g.main.Done() // it comes soon after
	}
	if death := g.svc.death(ctx); death != nil {
		return death // which is why its stream has ended
	}
	return saying(err, g.complaint())
}

func (g *guests) complaint() string {
	if g.wire == nil || !g.main.Lost() {
		return ""
	}
	return g.wire.Complaint()
}

// exec runs cmd through the guest of its user.
func (g *guests) exec(ctx context.Context, cmd fumehood.Cmd, live bool, out fumehood.Sink) (fumehood.ProcessBackend, error) {
	u, err := g.ofUser(ctx, cmd.User)
	if err != nil {
		return nil, err
	}
	g.svc.sb.ran.Store(true)
	c := g.svc.begin(u)
	p, err := u.guest.Exec(ctx, cmd, live, out)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	c.ProcessBackend = p
	return c, nil
}

// own returns the guest for the service's own user, started if need be.
func (g *guests) own(ctx context.Context) (*client.Guest, error) {
	u, err := g.ofUser(ctx, "")
	if err != nil {
		return nil, err
	}
	return u.guest, nil
}

// ofUser returns the guest for a user, started if need be.
func (g *guests) ofUser(ctx context.Context, user string) (*userGuest, error) {
	if user == g.svc.info.User {
		user = ""
	}
	if g.main != nil && user == "" {
		return &userGuest{guest: g.main}, nil
	}
	for {
		u, err := g.join(ctx, user)
		if err != nil {
			return nil, err
		}
		select {
		case <-u.started:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if u.err != nil {
			return nil, u.err
		}
		if !u.guest.Lost() {
			return u, nil
		}
		g.forget(user, u) // somebody has killed it: its commands are lost, the next gets a fresh one
	}
}

// join returns the guest for a user that is there or on its way.
func (g *guests) join(ctx context.Context, user string) (*userGuest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed
	}
	if u := g.byUser[user]; u != nil {
		return u, nil
	}
	starting, giveUp := context.WithCancelCause(context.WithoutCancel(ctx)) // others may wait for it too
	u := &userGuest{giveUp: giveUp, started: make(chan struct{})}
	if g.byUser == nil {
		g.byUser = map[string]*userGuest{}
	}
	g.byUser[user] = u
	dead := g.dead[user]
	go func() {
		defer close(u.started)
		defer giveUp(nil)
		if u.err = g.start(starting, user, u, dead); u.err != nil {
			g.forget(user, u)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.dead, user)
	}()
	return u, nil
}

// forget makes the next command of the user start another guest than u, which has died or could not be
// started.
func (g *guests) forget(user string, u *userGuest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byUser[user] != u {
		return
	}
	delete(g.byUser, user)
	if u.err == nil {
		if g.dead == nil {
			g.dead = map[string]*userGuest{}
		}
		g.dead[user] = u
	}
}

// start starts a guest by an exec. What the commands of a dead one left is killed first: by the main
// process, since the new guest could perhaps not be started beside it, and by the new one, since the main
// process may not be allowed to.
func (g *guests) start(ctx context.Context, user string, u, dead *userGuest) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.svc.sb.p.guestWithin, slow(g.svc.sb.p.guestWithin))
	defer cancel()
	defer func() {
		if err != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %s", context.Cause(ctx), err.Error()) // it may tell what the guest complains of
		}
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = g.svc.seen(ctx, err, "")
		}
	}()
	if dead != nil && g.main != nil {
		swept, err := g.main.Sweep(ctx, &dead.swept.User, dead.swept.Began)
		if err != nil {
			return g.explain(ctx, err)
		}
		g.survived(user, swept.Survivors)
	}
	if user == "" && g.svc.sb.key != nil {
		u.guest, u.swept, err = g.meet(ctx, "", dead.began())
		return err
	}
	if user == "" {
		user = g.svc.info.User
	}
	l, err := g.launch(ctx, user, dead.began())
	if err != nil {
		return err
	}
	if err := g.move(ctx, l.guest); err != nil { // code in the sandbox may have got in its way
		g.svc.sb.p.opts.Logger.Debug("a guest is reached through the daemon only", "sandbox", g.svc.sb.spec.Name, "service", g.svc.Name, "user", user, "error", err)
	}
	u.guest, u.exec, u.swept = l.guest, l.exec, l.swept
	return nil
}

// notGuest says of an error that it is about a guest, of which it does not speak, and not about the command.
func notGuest(err error) error {
	return &fumehood.Error{Op: "start the guest", Class: fumehood.ClassOf(err), Err: err}
}

// survived tells of processes of a dead guest that could not be killed.
func (g *guests) survived(user string, n int) {
	if n > 0 {
		g.svc.sb.p.opts.Logger.Warn("a guest has died, and what its commands left cannot be killed", "sandbox", g.svc.sb.spec.Name, "service", g.svc.Name, "user", user, "processes", n)
	}
}

func (g *guests) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// close ends the connections. The guests then kill what they have started.
func (g *guests) close() {
	g.mu.Lock()
	g.closed = true
	started := g.byUser
	g.byUser = nil
	residents := g.residents
	g.residents = nil
	g.mu.Unlock()
	for _, r := range residents {
		r.guest.Close()
	}
	for _, u := range started {
		u.giveUp(errClosed)
		<-u.started
		if u.guest != nil {
			u.guest.Close()
		}
	}
	if g.main != nil {
		g.main.Close()
	}
}
