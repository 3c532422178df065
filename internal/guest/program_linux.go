package guest

import (
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// enlistProgram makes a command the service's own program. g.mu is held.
func (g *guest) enlistProgram(c *command) *wire.Failed {
	before := g.program
	switch {
	case !g.resident || c.req.Live:
		return noDetached
	case before != nil && !isClosed(before.ended):
		return &wire.Failed{What: wire.NoDetached, Text: "the service's own program runs already"}
	case before != nil:
		c.earlier, c.tails = before, before.tails
		before.earlier = nil
	}
	c.id, c.began, c.settled = wire.ProgramID, time.Now(), make(chan struct{})
	g.program = c
	return nil
}

// restart sets when the guest starts the service's own program again.
func (g *guest) restart(s *wire.Stream, req *wire.Restart) {
	g.mu.Lock()
	c, first := g.program, g.again == nil
	if c != nil {
		g.again = req
	}
	g.mu.Unlock()
	if c == nil {
		answer(s, wire.Restarts{Failed: noDetached})
		return
	}
	if first {
		go g.keepRunning(c)
	}
	answer(s, wire.Restarts{})
}

// keepRunning starts the service's own program again whenever it has ended, as g.again says.
func (g *guest) keepRunning(c *command) {
	<-c.ended
	ran, pause := time.Duration(c.exit.WallUS)*time.Microsecond, time.Duration(0)
	for g.replace(c, nil) {
		pause = wire.RestartPause(ran, pause)
		<-time.After(pause)
		next := newCommand(g, c.s, c.req)
		if !g.replace(c, next) { // changed meanwhile
			return
		}
		ran = 0
		if failed := next.begin(); failed != nil {
			close(next.done)
			next.settle(failed)
			continue
		}
		next.run()
		if next.failed == nil {
			c, ran = next, time.Duration(next.exit.WallUS)*time.Microsecond
		}
	}
}

// replace reports whether the service's own program, which has ended, is started again. Then it enlists the next one, unless
// that is nil.
func (g *guest) replace(c, next *command) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.exit.Lost || !g.again.Again(c.exit.Code) {
		return false
	}
	if next == nil {
		return true
	}
	g.again.Done++
	return g.enlistProgram(next) == nil
}
