package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// A detached command belongs to no connection. What is kept of its output, and how it ended, stays until it is
// forgotten. Any number of hosts may look at it at once, each over a stream of its own, and none holds it
// back.

// enlist gives a command that is to be detached its number.
func (g *guest) enlist(c *command) *wire.Failed {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.req.Live {
		return noDetached
	}
	if g.detached[c.req.ID] != nil {
		return &wire.Failed{What: wire.NoDetached, Text: fmt.Sprintf("there is a detached command %d already", c.req.ID)}
	}
	if failed := g.full(); failed != nil {
		return failed
	}
	c.id, c.began = c.req.ID, time.Now()
	if c.id <= 0 {
		c.id = g.last + 1
	}
	g.last = max(g.last, c.id)
	c.settled = make(chan struct{})
	g.detached[c.id] = c
	return nil
}

var noDetached = &wire.Failed{What: wire.NoDetached, Text: "this guest keeps no detached commands"}

// full tells why there can be no more detached commands; g.mu is held.
func (g *guest) full() *wire.Failed {
	n := len(g.detached) + len(g.reserved)
	switch {
	case !g.resident:
		return noDetached
	case n >= wire.MaxDetached:
		return &wire.Failed{What: wire.NoRoom, Text: fmt.Sprintf("there are %d detached commands, as many as there may be", n)}
	}
	return nil
}

// reservation is the number of a detached command that another user's guest keeps.
type reservation struct {
	user  []byte
	began time.Time
}

// reserve gives such a command its number.
func (g *guest) reserve(s *wire.Stream, req *wire.Reserve) {
	g.mu.Lock()
	answered := wire.Reserved{Failed: g.full()}
	if answered.Failed == nil {
		g.last = max(g.last, req.Above) + 1
		answered.ID = g.last
		g.reserved[answered.ID] = reservation{req.User, time.Now()}
	}
	g.mu.Unlock()
	answer(s, answered)
}

func (g *guest) strike(id int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.detached, id)
	delete(g.reserved, id)
}

func (g *guest) find(id int) *command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.detached[id]
}

// list tells of all detached commands, in the order of their numbers.
func (g *guest) list(s *wire.Stream) {
	g.mu.Lock()
	all := []wire.Detached{}
	for id, c := range g.detached {
		if !isClosed(c.settled) {
			continue // it may never be one
		}
		all = append(all, wire.Detached{
			ID: id, Args: beginning(c.req.Args, wire.MaxListedArgs), AgeUS: time.Since(c.began).Microseconds(),
			Ended: isClosed(c.ended), Stdin: c.req.Stdin,
		})
	}
	for id, r := range g.reserved {
		all = append(all, wire.Detached{ID: id, User: r.user, AgeUS: time.Since(r.began).Microseconds()})
	}
	g.mu.Unlock()
	slices.SortFunc(all, func(a, b wire.Detached) int { return a.ID - b.ID })
	if text, err := json.Marshal(all); err == nil {
		_ = s.Send(wire.Stdout, text) // a host that is gone needs no answer
	}
}

// beginning is as much of the arguments as has room in that many bytes.
func beginning(args [][]byte, room int) (cut [][]byte) {
	for _, a := range args {
		if room == 0 {
			break
		}
		a = a[:min(len(a), room)]
		room -= len(a)
		cut = append(cut, a)
	}
	return cut
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// join lets one more host look at a detached command.
func (g *guest) join(s *wire.Stream, req *wire.Join) {
	var r wire.Reply
	c := g.find(req.ID)
	if c != nil {
		<-c.settled // before, there is nothing to look at
		r.Failed = c.failed
	} else {
		r.Failed = &wire.Failed{What: wire.NoDetached, Text: fmt.Sprintf("there is no detached command %d", req.ID)}
	}
	if r.Failed == nil {
		r.Started = &wire.Started{ID: req.ID}
	}
	answer(s, r)
	if r.Failed == nil {
		c.watch(s)
	}
}

// forget drops a detached command that has ended.
func (g *guest) forget(s *wire.Stream, req *wire.Forget) {
	c := g.find(req.ID)
	forgot := wire.Forgot{Running: c != nil && !isClosed(c.ended)}
	if !forgot.Running {
		g.strike(req.ID)
	}
	answer(s, forgot)
}

// watch serves a host that looks at a detached command, until that host has enough.
func (c *command) watch(s *wire.Stream) {
	gone := make(chan struct{})
	var showing sync.WaitGroup
	defer showing.Wait()
	defer close(gone)
	following := false
	for {
		ev, err := s.Receive()
		if err != nil {
			s.Close() // ends who waits to send
			return
		}
		if c.take(s, ev) && !following {
			following = true
			showing.Go(func() { c.show(s, gone) })
		}
	}
}

// show sends a host the output, and at last how the command ended.
func (c *command) show(s *wire.Stream, gone <-chan struct{}) {
	var streams sync.WaitGroup
	for i := range c.tails {
		streams.Go(func() { c.showOne(s, i, gone) })
	}
	streams.Wait()
	if !isClosed(c.ended) {
		return // it was the host that has gone
	}
	answer(s, wire.Reply{Exit: c.exit})
}

var offsets = []byte{wire.StdoutAt, wire.StderrAt}

// showOne sends one output until the command has ended and all is sent, or the host is gone.
func (c *command) showOne(s *wire.Stream, i int, gone <-chan struct{}) {
	const most = 32 << 10
	for sent := int64(0); ; {
		last := isClosed(c.ended)
		p, at, more := c.tails[i].From(sent, most)
		if at > sent && (len(p) > 0 || last) {
			if s.Send(offsets[i], binary.BigEndian.AppendUint64(nil, uint64(at))) != nil { //nolint:gosec // not negative
				return
			}
			sent = at
		}
		switch {
		case len(p) > 0:
			if s.Send(channels[i], p) != nil {
				return
			}
			sent += int64(len(p))
		case last:
			return
		default:
			select {
			case <-more:
			case <-c.ended:
			case <-gone:
				return
			}
		}
	}
}

// expire ends a command whose time is over.
func (c *command) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && !c.killing {
		c.timedOut = true
		c.killNow(c.req.GraceMS)
	}
}
