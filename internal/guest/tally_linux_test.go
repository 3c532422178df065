package guest

import (
	"testing"

	"github.com/fumehood/fumehood/internal/wire"
)

// The host may send another command as soon as it knows that one has failed to start. The failed one was not there then.
func TestTally_failedStart(t *testing.T) {
	host, opened := hostAndStreams(t)
	g := &guest{workers: map[int]*supervisor{}}
	command := func() *command {
		if _, err := host.Open([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c := newCommand(g, <-opened, &wire.Exec{})
		c.attend()
		return c
	}
	failing := command()
	failing.settle(&wire.Failed{What: wire.NoProgram, Text: "none"})
	next := command()
	if !next.alone() {
		t.Error("the command is not alone, beside one that has failed to start")
	}
	failing.depart() // as when its worker is free
	if g.commands.running != 1 {
		t.Errorf("%d commands are counted, not 1", g.commands.running)
	}
}
