package guest

import (
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// Restarts are handed over to the guest while a start of the program is about to fail. It starts the program before again.
func TestRestart_failingStart(t *testing.T) {
	host, opened := hostAndStreams(t)
	stream := func() *wire.Stream {
		if _, err := host.Open([]byte("x")); err != nil {
			t.Fatal(err)
		}
		return <-opened
	}
	g := &guest{resident: true}
	program := func() *command {
		c := newCommand(g, stream(), &wire.Exec{Detach: true, ID: wire.ProgramID}) // without arguments it does not start
		if failed := g.enlist(c); failed != nil {
			t.Fatal(failed)
		}
		return c
	}
	first := program()
	first.settle(nil)
	first.exit = &wire.Exit{Code: 1}
	close(first.ended)
	failing := program()
	handed, answered := stream(), make(chan struct{})
	go func() {
		defer close(answered)
		g.restart(handed, &wire.Restart{Failed: true, Most: 1})
	}()
	starts := func(done func(r *wire.Restart) bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); ; <-time.After(time.Millisecond) {
			g.mu.Lock()
			ok := done(g.again)
			g.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the program is not started again")
			}
		}
	}
	starts(func(r *wire.Restart) bool { return r != nil })
	failing.settle(&wire.Failed{What: wire.NoProgram, Text: "none"})
	<-answered
	starts(func(r *wire.Restart) bool { return r != nil && r.Done == 1 })
	if c := g.find(wire.ProgramID); c != first {
		<-c.settled
	}
}
