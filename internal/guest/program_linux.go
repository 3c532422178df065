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

// restart sets when the guest starts the service's own program again. A start that has begun is over when it answers.
func (g *guest) restart(s *wire.Stream, req *wire.Restart) {
	g.mu.Lock()
	first := g.again == nil
	g.again = req
	g.mu.Unlock()
	c := g.settledProgram()
	if first && c != nil {
		go g.keepRunning(c)
	}
	if first && c == nil {
		g.mu.Lock()
		g.again = nil
		g.mu.Unlock()
	}
	if c == nil && *req != (wire.Restart{}) {
		answer(s, wire.Restarts{Failed: noDetached})
		return
	}
	answer(s, wire.Restarts{})
}

// settledProgram returns the service's own program, once its start has succeeded. If there is none, it returns nil.
func (g *guest) settledProgram() *command {
	for {
		c := g.find(wire.ProgramID)
		if c == nil {
			return nil
		}
		if <-c.settled; c.failed == nil {
			return c
		} // the one before is the program again
	}
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
