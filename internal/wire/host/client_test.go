package host

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

func TestExec_lost(t *testing.T) {
	for name, end := range map[string]func(*fake, uint32){
		"connection ends":          func(f *fake, _ uint32) { _ = f.conn.Close() },
		"stream ends":              func(f *fake, s uint32) { f.send(s, wire.Close) },
		"in the middle of a frame": func(f *fake, _ uint32) { _, _ = f.conn.Write([]byte{0, 0, 0, 1, 3, 0}); _ = f.conn.Close() },
		"guest reports it":         func(f *fake, s uint32) { f.say(s, exit(wire.Exit{Code: -1, Lost: true, Totals: [2]int64{4, 0}})) },
	} {
		t.Run(name, func(t *testing.T) {
			g, f := newFake(t)
			got, out, err := run(t, g, f, command, true, func(s uint32) {
				f.say(s, started)
				f.output(s, wire.Stdout, "half")
				end(f, s)
			})
			if err != nil || got.Outcome != fumehood.Lost || got.Code != -1 || out.out[1].String() != "half" {
				t.Errorf("got %+v, %q, %v", got, &out.out[1], err)
			}
			if n := f.count(wire.Open); n != 1 {
				t.Errorf("%d requests sent", n)
			}
		})
	}
}

func TestExec_guestEndsBeforeStart(t *testing.T) {
	g, f := newFake(t)
	_, _, err := run(t, g, f, command, true, func(uint32) { _ = f.conn.Close() })
	if !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	<-g.Done()
	if _, err := g.Exec(t.Context(), command, false, nil); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("the next command: %v", err)
	}
	if err := g.Ready(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
	if n := f.count(wire.Open); n != 1 {
		t.Errorf("%d requests sent", n)
	}
}

func TestReady_otherVersion(t *testing.T) {
	hostEnd, guestEnd := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, guestEnd) }()
	g := New(hostEnd)
	defer g.Close()
	_, _ = guestEnd.Write(frame(0, wire.Hello, []byte{wire.Version + 1}))
	if err := g.Ready(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "version") {
		t.Errorf("got %v", err)
	}
}

func TestExec_canceledBeforeReply(t *testing.T) {
	g, f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.opened
		cancel()
	}()
	soon(t, func() {
		if _, err := g.Exec(ctx, command, true, (&sink{}).take); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	f.say(1, started) // too late
	f.say(1, fine)
	if exit, _, err := run(t, g, f, command, false, func(s uint32) { f.say(s, started); f.say(s, fine) }); err != nil || exit.Code != 0 {
		t.Errorf("the next command: %+v, %v", exit, err)
	}
	if n := f.count(wire.Close); n < 1 {
		t.Error("the stream was not closed")
	}
	if n := f.count(wire.Open); n != 2 {
		t.Errorf("%d requests for 2 commands", n)
	}
}

func TestReady_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostEnd, guestEnd := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, guestEnd) }() // never answers
		g := New(hostEnd)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Ready(ctx); !errors.Is(err, fumehood.ErrCanceled) && !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		g.Close()
		_ = guestEnd.Close()
	})
}

// begin starts a command on a guest that only reports the start.
func begin(t *testing.T, g *Guest, f *fake, cmd fumehood.Cmd) *Process {
	t.Helper()
	go func() {
		<-f.opened
		f.say(1, started)
	}()
	p, err := g.Exec(t.Context(), cmd, true, (&sink{}).take)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExec_startNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newFake(t)
		began := time.Now()
		if _, err := g.Exec(t.Context(), command, true, (&sink{}).take); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != startWithin {
			t.Errorf("it took %v", took)
		}
		select {
		case <-g.Done():
		default:
			t.Error("the connection is still open for the next command")
		}
	})
}

func TestWait_noReply(t *testing.T) {
	t.Run("guest ends", func(t *testing.T) {
		g, f := newFake(t)
		exit, _, err := run(t, g, f, command, false, func(uint32) { _ = f.conn.Close() })
		if err != nil || exit.Outcome != fumehood.Lost || !strings.Contains(exit.Reason, "before the start") {
			t.Errorf("got %+v, %v", exit, err)
		}
	})
	t.Run("guest silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, _ := newFake(t)
			began := time.Now()
			p, err := g.Exec(t.Context(), command, false, (&sink{}).take)
			if err != nil {
				t.Fatal(err)
			}
			if exit, err := p.Wait(t.Context()); err != nil || exit.Outcome != fumehood.Lost || !strings.Contains(exit.Reason, "not answered") {
				t.Errorf("got %+v, %v", exit, err)
			}
			if took := time.Since(began); took != startWithin {
				t.Errorf("it took %v", took)
			}
			<-g.Done()
		})
	})
	t.Run("but not after its start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, f := newFake(t)
			go func() {
				<-f.opened
				f.say(1, started)
				<-time.After(2 * startWithin)
				f.say(1, fine)
			}()
			p, err := g.Exec(t.Context(), command, false, (&sink{}).take)
			if err != nil {
				t.Fatal(err)
			}
			if exit, err := p.Wait(t.Context()); err != nil || exit.Outcome != fumehood.Exited {
				t.Errorf("got %+v, %v", exit, err)
			}
		})
	})
}

func TestWait_exitWithoutStart(t *testing.T) {
	g, f := newFake(t)
	if exit, _, err := run(t, g, f, command, false, func(s uint32) { f.say(s, fine) }); err != nil || exit.Outcome != fumehood.Exited {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestKill_notAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := newFake(t)
		cmd := command
		cmd.Grace = 3 * time.Second
		p := begin(t, g, f, cmd)
		began := time.Now()
		if p.Kill(t.Context()) {
			t.Error("Kill returned true without an answer")
		}
		if took := time.Since(began); took != cmd.Grace+killWithin {
			t.Errorf("given up after %v", took)
		}
		if o := <-f.orders; !o.Kill {
			t.Errorf("the order was %+v", o)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Outcome != fumehood.Lost {
			t.Errorf("got %+v, %v", exit, err)
		}
		if err := g.Ready(t.Context()); err != nil { // the connection still works for other commands
			t.Error(err)
		}
	})
}

// The guest's answer is queued after output that a slow caller is still processing. The kill must wait for it.
func TestKill_slowOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := newFake(t)
		go func() {
			<-f.opened
			f.say(1, started)
		}()
		slow := make(chan struct{})
		p, err := g.Exec(t.Context(), command, true, func(fumehood.Stream, []byte) { <-slow })
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			f.output(1, wire.Stdout, "x")
			<-f.orders
			f.say(1, exit(wire.Exit{Code: 137, Signal: 9, Totals: [2]int64{1, 0}}))
		}()
		time.AfterFunc(5*killWithin, func() { close(slow) })
		if !p.Kill(t.Context()) {
			t.Error("Kill returned false")
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Outcome != fumehood.Signaled || exit.Leaked {
			t.Errorf("got %+v, %v", exit, err)
		}
	})
}

// A guest that was stopped does not read. Once its pipe is full, the order cannot be sent.
func TestKill_guestDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostEnd, guestEnd := net.Pipe()
		g := New(hostEnd)
		d := wire.NewDecoder(guestEnd, wire.MaxFromHost)
		go func() {
			_, _ = d.Next() // the host's greeting
			_, _ = guestEnd.Write(frame(0, wire.Hello, []byte{wire.Version}))
			_, _ = d.Next() // its request, and nothing after it
			_, _ = guestEnd.Write(frame(1, wire.Message, []byte(started)))
		}()
		p, err := g.Exec(t.Context(), command, true, (&sink{}).take)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if p.Kill(t.Context()) {
			t.Error("Kill returned true without a reader")
		}
		if took := time.Since(began); took > 2*killWithin+p.grace {
			t.Errorf("given up after %v", took)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Outcome != fumehood.Lost {
			t.Errorf("got %+v, %v", exit, err)
		}
		g.Close()
		_ = guestEnd.Close()
	})
}

func TestKill_survivors(t *testing.T) {
	for name, c := range map[string]struct {
		exit wire.Exit
		want bool
	}{
		"nothing":      {wire.Exit{Code: 137, Signal: 9}, true},
		"two":          {wire.Exit{Code: 137, Signal: 9, Survivors: 2}, false},
		"lost":         {wire.Exit{Code: -1, Lost: true}, true},
		"invalid exit": {wire.Exit{Code: 300}, false},
	} {
		g, f := newFake(t)
		p := begin(t, g, f, command)
		go func() {
			<-f.orders
			f.say(1, exit(c.exit))
		}()
		soon(t, func() {
			if got := p.Kill(t.Context()); got != c.want {
				t.Errorf("%s: got %v", name, got)
			}
		})
	}
}

func TestWait_survivors(t *testing.T) {
	for name, c := range map[string]struct {
		exit wire.Exit
		want provider.Exit
	}{
		"no survivor":            {wire.Exit{Code: -1, Lost: true}, provider.Exit{Outcome: fumehood.Lost}},
		"of a dead supervisor":   {wire.Exit{Code: -1, Lost: true, Survivors: 2}, provider.Exit{Outcome: fumehood.Lost, Leaked: true}},
		"of a kill by the guest": {wire.Exit{Code: 137, Signal: 9, Survivors: 1}, provider.Exit{Outcome: fumehood.Signaled, Leaked: true}},
	} {
		g, f := newFake(t)
		p := begin(t, g, f, command)
		f.say(1, exit(c.exit))
		soon(t, func() {
			got, err := p.Wait(t.Context())
			if err != nil || got.Outcome != c.want.Outcome || got.Leaked != c.want.Leaked {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			if all := strings.Contains(got.Reason, "with all"); got.Outcome == fumehood.Lost && all == c.want.Leaked {
				t.Errorf("%s: reason %q", name, got.Reason)
			}
		})
	}
}

func TestProcess_ordersAfterEnd(t *testing.T) {
	g, f := newFake(t)
	cmd := command
	cmd.StdinPipe = true
	p := begin(t, g, f, cmd)
	if _, err := p.Write([]byte("in")); err != nil {
		t.Error(err)
	}
	if err := p.CloseStdin(); err != nil {
		t.Error(err)
	}
	f.say(1, fine)
	soon(t, func() { _, _ = p.Wait(t.Context()) })
	if _, err := p.Write([]byte("late")); err == nil {
		t.Error("input was accepted after the end")
	}
	if err := errors.Join(p.CloseStdin(), p.Signal(t.Context(), 15), p.Resize(t.Context(), 1, 1)); err != nil {
		t.Error(err)
	}
	if err := p.Signal(t.Context(), 65); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("signal 65: %v", err)
	}
	if !p.Kill(t.Context()) {
		t.Error("Kill returned false for a command that has ended")
	}
	if n := f.count(wire.Message); n != 0 {
		t.Errorf("%d orders were sent", n)
	}
}

func TestRequest_tooLarge(t *testing.T) {
	g, f := newFake(t)
	_, err := g.Exec(t.Context(), fumehood.Cmd{Args: []string{strings.Repeat("x", wire.MaxFromHost)}}, false, nil)
	if !errors.Is(err, fumehood.ErrNotStarted) {
		t.Errorf("got %v", err)
	}
	if _, err := g.Stat(t.Context(), strings.Repeat("x", wire.MaxFromHost)); !errors.Is(err, fumehood.ErrLimit) {
		t.Errorf("got %v", err)
	}
	if n := f.count(wire.Open); n != 0 {
		t.Errorf("%d requests sent", n)
	}
}

func TestGuest_goroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("a guest", func(t *testing.T) {
		g, f := newFake(t)
		begin(t, g, f, command)
		g.Close()
	})
	deadline := time.After(within)
	for runtime.NumGoroutine() > before {
		select {
		case <-deadline:
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		case <-time.After(time.Millisecond):
		}
	}
}
