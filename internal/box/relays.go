package box

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// The connection to a resident guest by a relay outlives the relay, which may end with a daemon, a proxy, or by what a program in
// the sandbox does. Commands run on meanwhile, and their output is kept in the guest; see wire.Lasting.

const (
	// guestHolds is how long a guest keeps a connection that was cut, and with it the commands that run. A process that has died
	// does not connect again, so it is short for a kept sandbox, which nobody removes then.
	guestHolds = 3 * time.Minute
	keptHolds  = 30 * time.Second
	// carryWithin bounds the attempts to continue a connection, so that this process gives up before the guest does.
	carryWithin     = holdFor
	carryKeptWithin = 20 * time.Second
	// soon is how long a relay must live for the next one to start without a pause.
	soon = 10 * time.Second
)

// relays is the Exec of a guest that is reached by one relay after another: the last one.
type relays struct {
	m       *Guests
	relayer Relayer
	user    string
	conn    *wire.Lasting

	mu   sync.Mutex
	last Exec
}

func (r *relays) now() Exec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Complaint returns the end of what the last relay wrote to standard error.
func (r *relays) Complaint() string { return r.now().Complaint() }

// AwaitEnd waits for the exit of the last relay.
func (r *relays) AwaitEnd(ctx context.Context, within time.Duration) (int, error) {
	return r.now().AwaitEnd(ctx, within)
}

// Stopped reports whether the last relay is stopped.
func (r *relays) Stopped(ctx context.Context) (bool, error) { return r.now().Stopped(ctx) }

// carry starts a relay that carries the connection. It returns errNobody if no guest exists.
func (r *relays) carry(ctx context.Context) error {
	m := r.m
	name, secret := m.residence(r.user)
	rw, err := r.relayer.Relay(ctx, name)
	if err != nil {
		return m.explainCrowded(ctx, err)
	}
	r.mu.Lock()
	r.last = rw
	r.mu.Unlock()
	window := guestHolds
	if m.cfg.Key != nil {
		window = keptHolds
	}
	if err = host.Carry(ctx, r.conn, rw, secret, window); err == nil {
		return nil
	}
	var exit provider.Exit
	var werr error
	if errors.Is(err, io.EOF) { // the relay has ended, and its exit code is the reason
		exit, werr = rw.Wait(ctx)
	}
	_ = rw.Close()
	if exit.Outcome == fumehood.Exited && exit.Code == wire.NobodyListens {
		return errNobody
	}
	if exit.Outcome == fumehood.Exited && exit.Code == runtimeAborts {
		err = m.explainCrowded(ctx, err)
	}
	return errors.Join(Saying(m.explainLost(ctx, err), rw.Complaint()), werr)
}

// hold gives the connection another relay whenever one has ended, until the connection ends. If that fails for too long, or for
// good, it ends the connection.
func (r *relays) hold(ctx context.Context) {
	within := carryWithin
	if r.m.cfg.Key != nil {
		within = carryKeptWithin
	}
	began, pause := time.Now(), time.Duration(0)
	for r.conn.Cut() {
		if pause = min(2*pause, longestPause); time.Since(began) > soon {
			pause = 0
		}
		select {
		case <-time.After(pause):
		case <-r.m.closing:
			return
		}
		err := r.m.insist(ctx, within, true, func(trying context.Context) (final bool, err error) {
			if err := r.carry(trying); err != nil {
				return !r.conn.Away(), err
			}
			return false, nil
		})
		if err != nil {
			r.conn.Fail(err)
			return
		}
		r.m.cfg.Log.Debug("the connection to a guest continues by another relay", "user", r.user)
		began, pause = time.Now(), max(pause, firstPause)
	}
}
