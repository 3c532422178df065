package host

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

func TestTalk(t *testing.T) {
	g, f := newFake(t)
	soon(t, func() {
		sent := make(chan struct{})
		go func() {
			r := <-f.opened
			if r.Talk == nil || r.Talk.Port != 53 || len(r.Talk.Addresses) != 1 || r.Talk.Addresses[0] != "127.0.0.1" {
				t.Errorf("asked for %+v", r)
			}
			f.say(1, "{}")
			f.output(1, wire.Stdout, "\x00")
			f.output(1, wire.Stdout, "\x02he\x00\x00\x00\x03l")
			f.output(1, wire.Stdout, "lo")
			<-sent
			f.send(1, wire.Close)
		}()
		talk, err := g.Talk(t.Context(), loopback, 53)
		if err != nil {
			t.Fatal(err)
		}
		defer talk.Close()
		if err := talk.Send([]byte("question")); err != nil {
			t.Error(err)
		}
		if err := talk.Send(make([]byte, wire.MaxDatagram+1)); err == nil {
			t.Error("a datagram that is too long was sent")
		}
		close(sent)
		for _, want := range []string{"he", "", "llo"} {
			if got, err := talk.Receive(); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		if _, err := talk.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("at the end: %v", err)
		}
	})
}

func TestTalk_protocolErrors(t *testing.T) {
	for name, c := range map[string]struct {
		say     func(f *fake)
		class   error // of Talk
		receive error // of Receive, where Talk has none
	}{
		"refused":               {func(f *fake) { f.say(1, `{"failed":"nobody"}`) }, fumehood.ErrUnavailable, nil},
		"no such request":       {func(f *fake) { f.send(1, wire.Close) }, fumehood.ErrUnavailable, nil},
		"half a datagram":       {func(f *fake) { f.say(1, "{}"); f.output(1, wire.Stdout, "\x00\x05abc"); f.send(1, wire.Close) }, nil, io.ErrUnexpectedEOF},
		"another channel":       {func(f *fake) { f.say(1, "{}"); f.output(1, wire.Stderr, "\x00\x01a") }, nil, fumehood.ErrInfrastructure},
		"an unexpected message": {func(f *fake) { f.say(1, "{}"); f.say(1, "{}") }, nil, fumehood.ErrInfrastructure},
	} {
		t.Run(name, func(t *testing.T) {
			against(t, c.say, func(g *Guest) {
				talk, err := g.Talk(t.Context(), loopback, 53)
				if !errors.Is(err, c.class) {
					t.Fatalf("got %v, want %v", err, c.class)
				}
				if err != nil {
					return
				}
				defer talk.Close()
				if got, err := talk.Receive(); !errors.Is(err, c.receive) {
					t.Errorf("got %q, %v, want %v", bytes.Clone(got), err, c.receive)
				}
			})
		})
	}
}
