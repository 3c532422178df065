package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
)

// Guests manages the guests of one service. The main process, if it is a guest, serves the service's own user. For
// each other user the Unit starts one more, so that the Unit resolves the user, groups and HOME.
type Guests struct {
	cfg GuestConfig

	sockets atomic.Int64 // number of sockets created

	main *host.Guest // the connection to the main process over which it was started
	conn Conn        // to the main process
	ends int         // how often the service's own program had exited by itself when it became ready
	key  []byte      // the secret of resident guests; nil if there are none

	holding sync.WaitGroup // see hold
	closing chan struct{}  // closed by Close

	mu     sync.Mutex
	guests map[role]*guest
	dead   map[role]*guest // guests that died and whose processes were not killed yet
	starts int             // how many starts have begun
	closed bool

	commands tally
}

// role is the purpose of a guest.
type role struct {
	user  string // the user whose commands it runs; empty is the service's own
	keeps bool   // it is the resident for the detached commands of a user other than the service's own
}

// NewGuests returns the Guests of a service.
func NewGuests(c GuestConfig) *Guests {
	if c.Look == nil {
		c.Look = func(_ context.Context, err error) error { return err }
	}
	if c.Trusted == nil {
		c.Trusted = func(context.Context) error { return nil }
	}
	if c.Sockets == nil {
		c.Sockets = func() string { return "" }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Guests{cfg: c, key: c.Key, closing: make(chan struct{}), guests: map[role]*guest{}, dead: map[role]*guest{}}
}

// guest is a guest that was started, or is being started, by the Unit.
type guest struct {
	*host.Guest
	giveUp  context.CancelCauseFunc // cancels a start in progress
	started chan struct{}           // closed when Guest or err is set
	number  int                     // of the start
	exec    program                 // started it, or relays to it; nil if neither is ours
	finds   bool                    // the start only searches for it
	relayed bool                    // exec is a relay to a guest that outlives it
	near    bool                    // its connection does not go through the daemon
	swept   wire.Swept              // what it reported about itself
	err     error
}

// program is what is asked about an Exec later.
type program interface {
	Complaint() string
	AwaitEnd(ctx context.Context, within time.Duration) (int, error)
	Stopped(ctx context.Context) (bool, error)
}

// lastReport returns what the guest reported about itself; zero if u is nil.
func (u *guest) lastReport() wire.Swept {
	if u == nil {
		return wire.Swept{}
	}
	return u.swept
}

// Attach connects to the main process, which runs already or is started next.
func (m *Guests) Attach(ctx context.Context) error {
	var err error
	if m.conn, err = m.cfg.Unit.Attach(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	m.main = host.New(m.conn)
	return nil
}

// Lost is the error of a main process whose connection ended during the start.
type Lost struct{ Err error }

func (l Lost) Error() string { return l.Err.Error() }
func (l Lost) Unwrap() error { return l.Err }

// Ready waits until the main process answers. It makes the main process the resident guest if the sandbox has
// residents, and gives it a socket. Otherwise it moves the connection to a socket.
func (m *Guests) Ready(ctx context.Context) error {
	if err := m.main.Ready(ctx); err != nil {
		return m.early(ctx, err)
	}
	var err error
	if m.cfg.Key != nil {
		if err := m.reside(ctx, m.main); err != nil {
			return err
		}
		err = m.publish(ctx, m.main, "")
	} else if err = m.move(ctx, m.main); !m.main.Moved() && !m.main.Lost() {
		if err := m.linger(ctx); err != nil {
			return err
		}
	}
	switch {
	case m.main.Lost():
		return m.early(ctx, errors.Join(err, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the guest is lost")}))
	case err != nil: // there are sockets, so NoSockets is set
		m.cfg.NoSockets(err)
	}
	return nil
}

// markReady must be called when the service is ready. If the service's own program exits after that, it has broken the
// service.
func (m *Guests) markReady() { m.ends = m.now().Ends }

// HasEnded reports whether the service's own program has exited by itself since the service was ready.
func (m *Guests) HasEnded() bool { return m.now().Ends > m.ends }

// now returns the current state of the service.
func (m *Guests) now() State { return m.cfg.Unit.State() }

// Main returns the main process; nil if it is not a guest, or not connected now.
func (m *Guests) Main() *host.Guest {
	g := m.living()
	if g == nil || g.Away() {
		return nil
	}
	return g
}

// living is Main also while its connection waits for another relay.
func (m *Guests) living() *host.Guest {
	if m.main == nil || !m.main.Lost() {
		return m.main
	}
	m.mu.Lock()
	u := m.guests[role{}]
	m.mu.Unlock()
	if u == nil {
		return nil
	}
	select {
	case <-u.started:
	default:
		return nil
	}
	if u.err != nil || u.Lost() {
		return nil
	}
	return u.Guest
}

// Slow returns the error of a guest that did not answer in time.
func Slow(within time.Duration) error {
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest does not answer after %v, which is the limit", within)}
}

// errGuestsClosed is the cause of canceling the start of a guest.
var errGuestsClosed error = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}

// early explains an error of the main process during its start.
func (m *Guests) early(ctx context.Context, err error) error {
	lost := m.main.Lost()
	if err = m.explainLost(ctx, err); lost {
		return Lost{err}
	}
	return err
}

// DeathWait bounds the wait for the report of a death after a stream has ended. A busy Engine takes seconds.
const DeathWait = 5 * time.Second

// longestComplaint is how many bytes of a complaint an error includes. Variables of an image can make a Go program
// print much more.
const longestComplaint = 1000

// Saying adds to an error what the guest wrote to its standard error. It omits the stacks that a Go runtime prints if
// it is denied threads or memory.
func Saying(err error, complaint string) error {
	complaint, _, _ = strings.Cut(complaint, "\n\nruntime stack:")
	if complaint = strings.TrimSpace(complaint); complaint == "" {
		return err
	}
	if len(complaint) > longestComplaint {
		complaint = complaint[:longestComplaint] + "..."
	}
	return fmt.Errorf("%w; its standard error: %s", err, complaint)
}

// Explain returns the service's death instead of an error that the death caused.
func (m *Guests) Explain(ctx context.Context, err error) error {
	if err == nil || !errors.Is(err, fumehood.ErrUnavailable) && !errors.Is(err, fumehood.ErrInfrastructure) || ctx.Err() != nil {
		return err
	}
	if death := m.cfg.Unit.Death(ctx); death.Err != nil {
		return death.Err
	}
	return err
}

// explainLost adds to an error of a lost guest what the Unit knows and what the guest wrote.
func (m *Guests) explainLost(ctx context.Context, err error) error {
	if !errors.Is(err, fumehood.ErrUnavailable) {
		return err
	}
	lost := m.main != nil && m.living() == nil
	if lost {
		await(ctx, m.cfg.Unit, DeathWait, func(s State) bool { return !s.Lives })
		<-m.main.Done() // it exits soon after that
	}
	if death := m.cfg.Unit.Death(ctx); death.Err != nil {
		return death.Err // the reason why its stream has ended
	}
	if !lost {
		return err
	}
	return Saying(err, m.Complaint())
}

// Complaint returns the end of what the main process, if it is a guest, wrote to standard error.
func (m *Guests) Complaint() string {
	if m.conn == nil {
		return ""
	}
	return m.conn.Complaint()
}

// Own returns the guest of the service's own user. It starts the guest if necessary.
func (m *Guests) Own(ctx context.Context) (*host.Guest, error) { return m.Of(ctx, "") }

// Dir returns the working directory of the service's own guest, which is its container's.
func (m *Guests) Dir(ctx context.Context) (string, error) {
	u, err := m.of(ctx, "")
	if err != nil {
		return "", err
	}
	return u.swept.Dir, nil
}

// Of returns the guest of a user. It starts the guest if necessary.
func (m *Guests) Of(ctx context.Context, user string) (*host.Guest, error) {
	u, err := m.of(ctx, user)
	if err != nil {
		return nil, err
	}
	return u.Guest, nil
}

func (m *Guests) of(ctx context.Context, user string) (*guest, error) {
	if user == m.cfg.User {
		user = ""
	}
	if m.main != nil && user == "" {
		if !m.main.Lost() || m.key == nil {
			return &guest{Guest: m.main, near: m.main.Moved()}, nil
		}
		return m.relink(ctx, commandWithin, false)
	}
	return m.at(ctx, role{user: user}, false)
}

// at returns the guest of a role. If no guest exists, it starts one, unless find is set: then it returns errNobody. The
// failure of a start that began before the call is not its error.
func (m *Guests) at(ctx context.Context, r role, find bool) (*guest, error) {
	m.mu.Lock()
	before := m.starts
	m.mu.Unlock()
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
		if u.err != nil && u.number <= before || errors.Is(u.err, errNobody) && !find && u.finds {
			continue // another caller only searched for it
		}
		if u.err != nil {
			return nil, u.err
		}
		if !u.Lost() {
			return u, nil
		}
		m.forget(r, u) // it was killed: its commands are lost, the next one gets a new guest
	}
}

// join returns the guest of a role, and begins to start it if necessary; see at.
func (m *Guests) join(ctx context.Context, r role, find bool) (*guest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errGuestsClosed
	}
	if u := m.guests[r]; u != nil {
		return u, nil
	}
	starting, giveUp := context.WithCancelCause(context.WithoutCancel(ctx)) // not canceled with ctx: others may wait for it too
	m.starts++
	u := &guest{giveUp: giveUp, started: make(chan struct{}), number: m.starts, finds: find}
	m.guests[r] = u
	dead := m.dead[r]
	go func() {
		defer close(u.started)
		defer giveUp(nil)
		if u.err = m.startGuest(starting, r, find, u, dead); u.err != nil {
			m.forget(r, u)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.dead, r)
	}()
	return u, nil
}

// forget makes the next command of the role start a guest other than u, which has died or could not be started.
func (m *Guests) forget(r role, u *guest) {
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

// IsClosed reports whether Close was called.
func (m *Guests) IsClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// Close closes the connections. The guests then kill the processes that they started. Residents do not.
func (m *Guests) Close() {
	m.mu.Lock()
	if !m.closed {
		close(m.closing)
	}
	m.closed = true
	started := m.guests
	m.guests = nil
	m.mu.Unlock()
	for _, u := range started {
		u.giveUp(errGuestsClosed)
		<-u.started
		if u.Guest != nil {
			u.Close()
		}
	}
	if m.main != nil {
		m.main.Close()
	}
	m.holding.Wait()
}
