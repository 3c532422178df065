package guests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// Manager has the guests of one service: the main process, where it serves, for the service's own user; and one more,
// started by the Host, for each other user, so that the Host resolves user, groups and HOME.
type Manager struct {
	cfg Config

	sockets atomic.Int64 // how many were made

	main *client.Guest
	conn Conn // the main process's
	ends int  // how often the service's own program had ended by itself when it was ready

	mu     sync.Mutex
	guests map[role]*guest
	dead   map[role]*guest // those that have died, and were not swept after yet
	closed bool
}

// role is what a guest is there for.
type role struct {
	user  string // whose commands it runs; empty is the service's own
	keeps bool   // it is a resident for the detached commands of a user who is not the service's own
}

// New makes the Manager of a service.
func New(c Config) *Manager {
	return &Manager{cfg: c, guests: map[role]*guest{}, dead: map[role]*guest{}}
}

// guest is one that was started, or is being started, by the Host.
type guest struct {
	*client.Guest
	giveUp  context.CancelCauseFunc // ends the start, where it is under way
	started chan struct{}           // closed when Guest or err is set
	exec    Exec                    // by which it was started; nil of one that was there
	swept   wire.Swept              // what it told of itself
	err     error
}

// began is when the guest was started, in ticks since boot; 0 of none.
func (u *guest) began() uint64 {
	if u == nil {
		return 0
	}
	return u.swept.Began
}

// Attach connects to the main process, which is not started yet.
func (m *Manager) Attach(ctx context.Context) error {
	var err error
	if m.conn, err = m.cfg.Host.Attach(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	m.main = client.New(m.conn)
	return nil
}

// Lost is the error of a main process whose connection has ended before the start was over.
type Lost struct{ Err error }

func (l Lost) Error() string { return l.Err.Error() }
func (l Lost) Unwrap() error { return l.Err }

// Ready waits until the main process answers. It makes that the resident guest where there are such, else has it use a socket.
func (m *Manager) Ready(ctx context.Context) error {
	if err := m.main.Ready(ctx); err != nil {
		return m.early(ctx, err)
	}
	if m.cfg.Key != nil {
		return m.reside(ctx, m.main)
	}
	err := m.move(ctx, m.main)
	switch {
	case m.main.Lost():
		return m.early(ctx, errors.Join(err, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the guest is lost")}))
	case err != nil:
		m.cfg.NoSockets(err)
	}
	return nil
}

// Settled is called when the service is ready: who ends its own program after that has broken it.
func (m *Manager) Settled(ctx context.Context) { m.ends = m.now(ctx).Ends }

// HasEnded reports whether the service's own program has ended by itself since it was ready.
func (m *Manager) HasEnded(ctx context.Context) bool { return m.now(ctx).Ends > m.ends }

// now is what has happened to the service.
func (m *Manager) now(ctx context.Context) State { return m.cfg.Host.State(ctx, 0, nil) }

// Main is the main process; nil where it is no guest, or lost.
func (m *Manager) Main() *client.Guest {
	if m.main == nil || m.main.Lost() {
		return nil
	}
	return m.main
}

// Slow is the error of a guest that has not answered within its time.
func Slow(within time.Duration) error {
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest does not answer after %v, which is the limit", within)}
}

// errClosed ends the start of a guest.
var errClosed error = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}

// early explains an error about the main process during its start.
func (m *Manager) early(ctx context.Context, err error) error {
	lost := m.main.Lost()
	if err = m.explainLost(ctx, err); lost {
		return Lost{err}
	}
	return err
}

// DeathWait bounds the wait for the report of a death that the end of a stream has shown. A busy Engine takes seconds.
const DeathWait = 5 * time.Second

// longestComplaint is how much of a complaint is in an error, in bytes. An image's variables can have a Go program say much more.
const longestComplaint = 1000

// Saying adds to an error about a guest what that wrote to its standard error, without the stacks of a Go runtime that was
// denied threads or memory.
func Saying(err error, complaint string) error {
	complaint, _, _ = strings.Cut(complaint, "\n\nruntime stack:")
	if complaint = strings.TrimSpace(complaint); complaint == "" {
		return err
	}
	if len(complaint) > longestComplaint {
		complaint = complaint[:longestComplaint] + "..."
	}
	return fmt.Errorf("%w; it says: %s", err, complaint)
}

// Explain gives the service's death as the reason of an error that it has caused.
func (m *Manager) Explain(ctx context.Context, err error) error {
	if err == nil || !errors.Is(err, fumehood.ErrUnavailable) && !errors.Is(err, fumehood.ErrInfrastructure) || ctx.Err() != nil {
		return err
	}
	if death := m.cfg.Host.Death(ctx); death.Err != nil {
		return death.Err
	}
	return err
}

// explainLost adds to an error about a lost guest what the Host and the guest say.
func (m *Manager) explainLost(ctx context.Context, err error) error {
	if !errors.Is(err, fumehood.ErrUnavailable) {
		return err
	}
	if m.main != nil && m.main.Lost() {
		m.cfg.Host.State(ctx, DeathWait, func(s State) bool { return s.Over })
		<-m.main.Done() // it comes soon after
	}
	if death := m.cfg.Host.Death(ctx); death.Err != nil {
		return death.Err // which is why its stream has ended
	}
	if m.main == nil || !m.main.Lost() {
		return err
	}
	return Saying(err, m.Complaint())
}

// Complaint is the end of what a main process that is a guest wrote to standard error.
func (m *Manager) Complaint() string {
	if m.conn == nil {
		return ""
	}
	return m.conn.Complaint()
}

// Own returns the guest for the service's own user, started if need be.
func (m *Manager) Own(ctx context.Context) (*client.Guest, error) { return m.Of(ctx, "") }

// Of returns the guest for a user, started if need be.
func (m *Manager) Of(ctx context.Context, user string) (*client.Guest, error) {
	u, err := m.of(ctx, user)
	if err != nil {
		return nil, err
	}
	return u.Guest, nil
}

func (m *Manager) of(ctx context.Context, user string) (*guest, error) {
	if user == m.cfg.User {
		user = ""
	}
	if m.main != nil && user == "" {
		return &guest{Guest: m.main}, nil
	}
	return m.at(ctx, role{user: user}, false)
}

// at returns the guest of a role. Where there is none it is started, unless it is only to be found: then the error is an
// errNobody.
func (m *Manager) at(ctx context.Context, r role, find bool) (*guest, error) {
	for {
		u, err := m.join(ctx, r, find)
		if err != nil {
			return nil, err
		}
		select {
		case <-u.started:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if errors.Is(u.err, errNobody) && !find {
			continue // another caller has only looked for it
		}
		if u.err != nil {
			return nil, u.err
		}
		if !u.Lost() {
			return u, nil
		}
		m.forget(r, u) // somebody has killed it: its commands are lost, the next gets a fresh one
	}
}

// join returns the guest of a role that is there or on its way; see at.
func (m *Manager) join(ctx context.Context, r role, find bool) (*guest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if u := m.guests[r]; u != nil {
		return u, nil
	}
	starting, giveUp := context.WithCancelCause(context.WithoutCancel(ctx)) // others may wait for it too
	u := &guest{giveUp: giveUp, started: make(chan struct{})}
	m.guests[r] = u
	dead := m.dead[r]
	go func() {
		defer close(u.started)
		defer giveUp(nil)
		if u.err = m.start(starting, r, find, u, dead); u.err != nil {
			m.forget(r, u)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.dead, r)
	}()
	return u, nil
}

// forget makes the next command of the role start another guest than u, which has died or could not be started.
func (m *Manager) forget(r role, u *guest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guests[r] != u {
		return
	}
	delete(m.guests, r)
	if u.err == nil {
		m.dead[r] = u
	}
}

// IsClosed reports whether the guests were closed.
func (m *Manager) IsClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// Close ends the connections. The guests then kill what they have started, but for residents.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	started := m.guests
	m.guests = nil
	m.mu.Unlock()
	for _, u := range started {
		u.giveUp(errClosed)
		<-u.started
		if u.Guest != nil {
			u.Close()
		}
	}
	if m.main != nil {
		m.main.Close()
	}
}
