package box

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// fakeUnit is a Unit whose guests start every command and end none.
type fakeUnit struct {
	Unit
	state    State
	death    Death
	stopped  bool  // its guests are stopped
	mute     bool  // its guests do not answer
	distrust error // returned by Trusted
	lacks    bool  // its guests are root without capabilities, unless empowered
	weak     bool  // empowered guests lack capabilities too

	survivors int // of the sweeps of its guests

	mu    sync.Mutex
	execs []*exec
}

var (
	_ Unit      = (*fakeUnit)(nil)
	_ Relayer   = (*fakeUnit)(nil)
	_ Empowerer = (*fakeUnit)(nil)
)

var errPowerless error = &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("powerless")}

func (h *fakeUnit) Attach(context.Context) (Conn, error) { return h.start(false), nil }

func (h *fakeUnit) Exec(context.Context, string) (Exec, error) { return h.start(h.lacks), nil }

func (h *fakeUnit) ExecEmpowered(context.Context, string) (Exec, error) { return h.start(h.weak), nil }

func (h *fakeUnit) Powerless(err error) error {
	if err != nil {
		return nil
	}
	return errPowerless
}

func (h *fakeUnit) Relay(context.Context, string) (Exec, error) { return nil, errors.New("no relay") }
func (h *fakeUnit) Death(context.Context) Death                 { return h.death }

func (h *fakeUnit) State() State { return h.state }

func (h *fakeUnit) Until(ctx context.Context, wanted func(State) bool) (State, bool) {
	if !wanted(h.state) {
		<-ctx.Done()
	}
	return h.state, wanted(h.state)
}

func (h *fakeUnit) start(lacks bool) *exec {
	h.mu.Lock()
	defer h.mu.Unlock()
	own, pipe := net.Pipe()
	other := buffer(pipe)
	e := &exec{stopped: h.stopped, Conn: own, guestEnd: other, swept: wire.Swept{User: 7, Began: uint64(10 * (len(h.execs) + 1)), Lacks: lacks, Survivors: h.survivors}}
	h.execs = append(h.execs, e)
	if h.mute {
		go func() {
			_, _ = io.Copy(io.Discard, other)
			_ = other.Close()
		}()
	} else {
		go func() { _ = wire.NewConn(other, wire.Guest, e.answer).Serve() }() // ends with the connection
	}
	return e
}

// buffered is a connection whose writes do not wait for the reader. Writes to a net.Pipe do, and both sides begin with
// a greeting.
type buffered struct {
	net.Conn
	out    chan []byte
	closed chan struct{}
	close  func() error
}

func buffer(c net.Conn) *buffered {
	b := &buffered{Conn: c, out: make(chan []byte, 16), closed: make(chan struct{})}
	b.close = sync.OnceValue(func() error {
		close(b.closed)
		return c.Close()
	})
	go func() {
		for {
			select {
			case p := <-b.out:
				_, _ = c.Write(p)
			case <-b.closed:
				return
			}
		}
	}()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case b.out <- bytes.Clone(p):
		return len(p), nil
	case <-b.closed:
		return 0, io.ErrClosedPipe
	}
}

func (b *buffered) Close() error { return b.close() }

// exec is a scripted guest.
type exec struct {
	net.Conn
	guestEnd net.Conn
	swept    wire.Swept
	since    uint64 // argument of the last sweep
	code     int    // exit code
	stopped  bool
}

func (e *exec) answer(s *wire.Stream, request []byte) {
	var reply []byte
	switch r, err := wire.DecodeRequest(request); {
	case err != nil:
		reply = []byte(err.Error())
	case r.Sweep != nil:
		e.since = r.Sweep.Since
		reply, _ = json.Marshal(e.swept)
	case r.Reside != nil:
		reply = []byte("{}")
	case r.Exec != nil:
		reply = wire.Append(nil, &wire.Reply{Started: &wire.Started{}})
	}
	_ = s.SendMessage(reply)
}

// end makes the guest exit with a code.
func (e *exec) end(code int) {
	e.code = code
	_ = e.guestEnd.Close()
}

func (e *exec) Complaint() string                           { return "so it complains" }
func (e *exec) Wait(context.Context) (provider.Exit, error) { return provider.Exit{}, nil }
func (e *exec) Stopped(context.Context) (bool, error)       { return e.stopped, nil }

// AwaitEnd returns immediately, unless the guest is stopped.
func (e *exec) AwaitEnd(_ context.Context, within time.Duration) (int, error) {
	if e.stopped {
		<-time.After(within)
		return -1, nil
	}
	return e.code, nil
}

// managed returns a Guests with guests of h.
func managed(t *testing.T, h *fakeUnit) *Guests {
	t.Helper()
	m := NewGuests(GuestConfig{
		Unit: h, Sandbox: "box", User: "own", Within: time.Minute, Ran: new(atomic.Bool), Log: slog.New(slog.DiscardHandler),
		Sockets:   func() string { return "" },
		NoSockets: func(err error) { t.Error(err) },
		Trusted:   func(context.Context) error { return h.distrust },
		Look:      func(_ context.Context, err error) error { return fmt.Errorf("%w; it looks bad", err) },
	})
	t.Cleanup(m.Close)
	return m
}

// command starts a command that does not end by itself.
func command(t *testing.T, m *Guests, user string) provider.ProcessBackend {
	t.Helper()
	p, err := m.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep"}, User: user}, true, func(fumehood.Stream, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGuests_guestKilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &fakeUnit{}
		m := managed(t, h)
		defer m.Close()
		p := command(t, m, "user")
		h.execs[0].end(137)
		exit, err := p.Wait(t.Context())
		if err != nil || exit.Outcome != fumehood.Lost || !exit.CausedInside || exit.Reason != "the guest was killed in the sandbox" {
			t.Errorf("%+v, %v", exit, err)
		}
		if len(h.execs) != 2 || exit.Leaked {
			t.Errorf("%d guests when the command is reported as lost; leaked %v", len(h.execs), exit.Leaked)
		}
		command(t, m, "user")
		command(t, m, "user")
		if len(h.execs) != 2 || h.execs[1].since != h.execs[0].swept.Began {
			t.Errorf("%d guests; the second one sweeps processes since %d", len(h.execs), h.execs[len(h.execs)-1].since)
		}
	})
}

func TestCommand_lossCause(t *testing.T) {
	t.Parallel()
	lost, oom := fumehood.Lost, fumehood.OutOfMemory
	dead := func(class error) Death { return Death{Err: &fumehood.Error{Class: class, Err: errors.New("dead")}} }
	for name, c := range map[string]struct {
		then    func(h *fakeUnit)
		user    string
		code    int
		outcome fumehood.Outcome
		why     string // the reason, if something in the sandbox caused the loss
	}{
		"nobody knows":              {user: "user", outcome: lost},
		"killed":                    {user: "user", code: 137, outcome: lost, why: "the guest was killed"},
		"killed for its memory":     {user: "user", code: 137, outcome: oom, then: func(h *fakeUnit) { h.state.OOMs++ }},
		"stopped when it ended":     {user: "user", code: wire.WasStopped, outcome: lost, why: "the guest was stopped"},
		"the daemon's death":        {outcome: lost, then: func(h *fakeUnit) { h.death = dead(fumehood.ErrUnavailable) }},
		"a death from inside":       {outcome: lost, why: "dead", then: func(h *fakeUnit) { h.death = dead(fumehood.ErrBroken) }},
		"a death of memory":         {outcome: oom, then: func(h *fakeUnit) { h.death = dead(fumehood.ErrBroken); h.death.OutOfMemory = true }},
		"its own program's end":     {outcome: lost, why: "the service's own program", then: func(h *fakeUnit) { h.state.Ends++ }},
		"another's kill for memory": {user: "user", outcome: lost, then: func(h *fakeUnit) { h.state.OOMs++ }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &fakeUnit{state: State{OOMs: 3, Ends: 3}}
				m := managed(t, h)
				defer m.Close()
				p := command(t, m, c.user)
				if c.then != nil {
					c.then(h)
				}
				h.execs[0].end(c.code)
				exit, err := p.Wait(t.Context())
				if err != nil || exit.Outcome != c.outcome || exit.CausedInside != (c.why != "") || !strings.Contains(exit.Reason, c.why) {
					t.Errorf("%+v, %v", exit, err)
				}
			})
		})
	}
}

func TestGuests_guestMute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := managed(t, &fakeUnit{mute: true})
		defer m.Close()
		began := time.Now()
		_, err := m.Own(t.Context())
		if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "does not answer after 1m0s") || !strings.Contains(fmt.Sprint(err), "it looks bad") || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A program that stops each new guest has broken the sandbox. That is not an infrastructure failure.
func TestGuests_guestStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &fakeUnit{mute: true, stopped: true}
		m := managed(t, h)
		defer m.Close()
		_, err := m.Of(t.Context(), "user")
		if !errors.Is(err, fumehood.ErrBroken) || !strings.Contains(fmt.Sprint(err), "the guest was stopped in the sandbox") || strings.Count(fmt.Sprint(err), "does not answer") != 1 {
			t.Errorf("got %v", err)
		}
	})
}

func TestGuests_closeDuringStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := managed(t, &fakeUnit{mute: true})
		failed := make(chan error)
		go func() {
			_, err := m.Own(t.Context())
			failed <- err
		}()
		synctest.Wait()
		began := time.Now()
		m.Close()
		if err := <-failed; !errors.Is(err, errGuestsClosed) || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := m.Own(t.Context()); !errors.Is(err, errGuestsClosed) {
			t.Error(err)
		}
	})
}

func TestGuests_empowersRoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &fakeUnit{lacks: true}
		m := managed(t, h)
		defer m.Close()
		if lacks, err := m.Lacks(t.Context(), "root"); err != nil || !lacks {
			t.Errorf("%v, %v", lacks, err)
		}
		if _, err := m.Of(t.Context(), "root"); err != nil || len(h.execs) != 3 {
			t.Errorf("%d were started: %v", len(h.execs), err)
		}
		h.weak = true
		if _, err := m.Of(t.Context(), "root too"); !errors.Is(err, errPowerless) || len(h.execs) != 5 {
			t.Errorf("%d were started: %v", len(h.execs), err)
		}
		h.weak, h.distrust = false, errors.New("it was replaced")
		if _, err := m.Of(t.Context(), "root as well"); !errors.Is(err, h.distrust) {
			t.Errorf("untrusted guest: %v", err)
		}
	})
}

// plain is a Host that is not an Empowerer.
type plain struct{ Unit }

func TestGuests_noEmpowerer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := managed(t, &fakeUnit{lacks: true})
		defer m.Close()
		m.cfg.Unit = plain{m.cfg.Unit}
		if _, err := m.Of(t.Context(), "root"); !errors.Is(err, fumehood.ErrUnsupported) {
			t.Error(err)
		}
	})
}

func TestGuests_startLosesGuest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &fakeUnit{mute: true}
		m := managed(t, h)
		m.cfg.Serves = true
		if err := m.Attach(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.execs[0].end(1)
		err := m.Ready(t.Context())
		var lost Lost
		if !errors.As(err, &lost) || !strings.Contains(fmt.Sprint(err), "so it complains") || m.Main() != nil {
			t.Error(err)
		}
	})
}
