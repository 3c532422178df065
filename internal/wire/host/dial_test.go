package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1")}

func TestDial(t *testing.T) {
	g, f := newFake(t)
	soon(t, func() {
		go func() {
			r := <-f.opened
			if r.Dial == nil || r.Dial.Port != 80 || len(r.Dial.Addresses) != 1 || r.Dial.Addresses[0] != "127.0.0.1" {
				t.Errorf("asked for %+v", r)
			}
			f.say(1, "{}")
			f.output(1, wire.Stdout, "hel")
			f.output(1, wire.Stdout, "lo")
			f.send(1, wire.End, wire.Stdout)
		}()
		c, err := g.Dial(t.Context(), loopback, 80)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("question")); err != nil {
			t.Error(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestDial_protocolErrors(t *testing.T) {
	for name, c := range map[string]struct {
		say   func(f *fake)
		class error // of Dial
		read  error // of what is read, where Dial has none
	}{
		"refused":              {func(f *fake) { f.say(1, `{"failed":"refused"}`) }, fumehood.ErrUnavailable, nil},
		"no answer":            {func(f *fake) { f.say(1, "nonsense") }, fumehood.ErrInfrastructure, nil},
		"content first":        {func(f *fake) { f.output(1, wire.Stdout, "x") }, fumehood.ErrInfrastructure, nil},
		"connection ends":      {func(f *fake) { _ = f.conn.Close() }, fumehood.ErrUnavailable, nil},
		"a broken stream":      {func(f *fake) { f.say(1, "{}"); f.send(1, wire.Close) }, nil, io.ErrUnexpectedEOF},
		"another channel":      {func(f *fake) { f.say(1, "{}"); f.output(1, wire.Stderr, "x") }, nil, fumehood.ErrInfrastructure},
		"a message in between": {func(f *fake) { f.say(1, "{}"); f.say(1, "{}") }, nil, fumehood.ErrInfrastructure},
	} {
		t.Run(name, func(t *testing.T) {
			against(t, c.say, func(g *Guest) {
				conn, err := g.Dial(t.Context(), loopback, 80)
				if !errors.Is(err, c.class) {
					t.Fatalf("got %v, want %v", err, c.class)
				}
				if err != nil {
					return
				}
				if _, err := io.Copy(&bytes.Buffer{}, conn); !errors.Is(err, c.read) {
					t.Errorf("got %v, want %v", err, c.read)
				}
				_ = conn.Close()
			})
		})
	}
}

func TestDial_canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	against(t, func(*fake) { cancel() }, func(g *Guest) {
		if _, err := g.Dial(ctx, loopback, 80); !errors.Is(err, fumehood.ErrCanceled) {
			t.Errorf("got %v", err)
		}
	})
}
