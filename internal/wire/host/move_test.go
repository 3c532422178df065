package host

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// listenIn listens on a socket in a directory of the test.
func listenIn(t *testing.T) (l net.Listener, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l, path
}

// show connects and proves knowledge of a secret. It reports whether the proof was accepted.
func show(t *testing.T, path string, secret []byte) (net.Conn, bool) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, false
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, wire.ProveWithin(c, wire.Guest, secret, within) == nil
}

// move calls g.Move while script plays the guest's part, and returns Move's error.
func move(t *testing.T, g *Guest, f *fake, script func(m *wire.Move)) (err error) {
	t.Helper()
	l, path := listenIn(t)
	soon(t, func() {
		scripted := make(chan struct{})
		go func() {
			defer close(scripted)
			script((<-f.opened).Move)
		}()
		err = g.Move(t.Context(), l, path)
		<-scripted
	})
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		t.Error("the socket still listens")
	}
	return err
}

// works runs a command through the guest at the other end of f.
func works(t *testing.T, g *Guest, f *fake) {
	t.Helper()
	exit, _, err := run(t, g, f, command, false, func(s uint32) {
		f.say(s, started)
		f.say(s, fine)
	})
	if err != nil || exit.Outcome != fumehood.Exited {
		t.Errorf("got %+v, %v", exit, err)
	}
}

// movedGuest returns a guest that has moved.
func movedGuest(t *testing.T) (g *Guest, first, second *fake) {
	t.Helper()
	g, first = newFake(t)
	err := move(t, g, first, func(m *wire.Move) {
		conn, ok := show(t, string(m.Path), m.Secret)
		if !ok {
			t.Error("the secret was not accepted")
			return
		}
		second = fakeOn(t, conn)
		first.say(1, `{}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, first, second
}

func TestMove(t *testing.T) {
	g, first, second := movedGuest(t)
	works(t, g, second)
	works(t, g, second)
	if n := first.count(wire.Open); n != 1 {
		t.Errorf("%d requests on the first connection", n)
	}
}

func TestMove_strangers(t *testing.T) {
	g, first := newFake(t)
	err := move(t, g, first, func(m *wire.Move) {
		silent, _ := net.Dial("unix", string(m.Path))
		defer silent.Close()
		if _, ok := show(t, string(m.Path), make([]byte, wire.SecretSize)); ok {
			t.Error("a wrong secret was accepted")
		}
		conn, ok := show(t, string(m.Path), m.Secret)
		if !ok {
			t.Error("the secret was not accepted next to strangers")
			return
		}
		fakeOn(t, conn)
		first.say(1, `{}`)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMove_fails(t *testing.T) {
	for name, script := range map[string]func(f *fake, m *wire.Move){
		"guest reports it": func(f *fake, _ *wire.Move) { f.say(1, `{"failed":"no such file"}`) },
		"invalid answer":   func(f *fake, _ *wire.Move) { f.say(1, `[]`) },
		"stream ends":      func(f *fake, _ *wire.Move) { f.send(1, wire.Close) },
	} {
		t.Run(name, func(t *testing.T) {
			g, f := newFake(t)
			if err := move(t, g, f, func(m *wire.Move) { script(f, m) }); err == nil {
				t.Error("no error")
			}
			works(t, g, f)
		})
	}
	t.Run("reported, but not connected", func(t *testing.T) {
		g, f := newFake(t)
		l, path := listenIn(t)
		ctx, cancel := context.WithCancel(t.Context())
		soon(t, func() {
			go func() {
				<-f.opened
				f.say(1, `{}`)
				cancel()
			}()
			if err := g.Move(ctx, l, path); err == nil {
				t.Error("no error")
			}
		})
		works(t, g, f)
	})
}

func TestMove_connectionEnds(t *testing.T) {
	t.Run("the first", func(t *testing.T) {
		g, first, second := movedGuest(t)
		_ = first.conn.Close()
		soon(t, func() { <-g.first.Done() })
		if works(t, g, second); g.Lost() {
			t.Error("the guest is lost with its first connection")
		}
		_ = second.conn.Close()
		soon(t, func() { <-g.Done() })
		if !g.Lost() || !g.Cut() {
			t.Errorf("lost %v, cut %v, want both", g.Lost(), g.Cut())
		}
	})
	t.Run("the second", func(t *testing.T) {
		g, first, second := movedGuest(t)
		_ = second.conn.Close()
		soon(t, func() { <-first.ended; <-g.Done() })
	})
}
