package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// A detached command belongs to no connection. Its exit and the end of its output are kept until it is forgotten. Any
// number of hosts may watch it at once, each over a stream of its own. A slow host does not block the command or the
// other hosts.

// enlist assigns a number to a command that is to be detached.
func (g *guest) enlist(c *command) *wire.Failed {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.req.Live {
		return noDetached
	}
	if c.req.ID == wire.ProgramID {
		if g.again != nil {
			return &wire.Failed{What: wire.NoDetached, Text: "only the guest starts the service's own program again"}
		}
		return g.enlistProgram(c)
	}
	if g.detached[c.req.ID] != nil {
		return &wire.Failed{What: wire.NoDetached, Text: fmt.Sprintf("detached command %d already exists", c.req.ID)}
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

// full returns an error if no further detached command can be kept, otherwise nil. g.mu is held.
func (g *guest) full() *wire.Failed {
	n := len(g.detached) + len(g.reserved)
	switch {
	case !g.resident:
		return noDetached
	case n >= wire.MaxDetached:
		return &wire.Failed{What: wire.NoRoom, Text: fmt.Sprintf("too many detached commands: %d", n)}
	}
	return nil
}

// reservation is the number of a detached command that another user's guest keeps.
type reservation struct {
	user  []byte
	began time.Time
}

// reserve assigns a number to a detached command of another user's guest.
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
	if id == wire.ProgramID && g.program != nil {
		g.program = g.program.earlier
	}
	delete(g.detached, id)
	delete(g.reserved, id)
}

func (g *guest) find(id int) *command {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id == wire.ProgramID {
		return g.program
	}
	return g.detached[id]
}

// list sends a list of all detached commands, ordered by number.
func (g *guest) list(s *wire.Stream) {
	g.mu.Lock()
	all := []wire.Detached{}
	for id, c := range g.detached {
		if !isClosed(c.settled) {
			continue // its start may still fail
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
		_ = s.Send(wire.Stdout, text) // the host may be gone
	}
}

// beginning returns the first arguments, cut to at most room bytes in total.
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

// join lets one more host watch a detached command.
func (g *guest) join(s *wire.Stream, req *wire.Join) {
	var r wire.Reply
	c := g.find(req.ID)
	if c != nil {
		<-c.settled // before, there is nothing to watch
		r.Failed = c.failed
	} else {
		r.Failed = &wire.Failed{What: wire.NoDetached, Text: fmt.Sprintf("there is no detached command %d", req.ID)}
	}
	if r.Failed == nil {
		r.Started = &wire.Started{ID: req.ID}
	}
	reply(s, r)
	if r.Failed == nil {
		c.watch(s, req.Kept)
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

// watch serves a host that watches a detached command, until the host closes the stream. kept is that of wire.Join.
func (c *command) watch(s *wire.Stream, kept bool) {
	gone := make(chan struct{})
	var showing sync.WaitGroup
	defer showing.Wait()
	defer close(gone)
	following := false
	for {
		ev, err := s.Receive()
		if err != nil {
			s.Close() // unblocks a pending send
			return
		}
		if c.take(s, ev) && !following {
			following = true
			showing.Go(func() { c.show(s, gone, kept) })
		}
	}
}

// show sends the output to a host, and then how the command ended. With kept, it sends only what is there now.
func (c *command) show(s *wire.Stream, gone <-chan struct{}, kept bool) {
	var exit *wire.Exit
	if kept && !isClosed(c.ended) {
		exit = &wire.Exit{Code: -1, Lost: true}
	}
	var streams sync.WaitGroup
	for i, t := range c.tails {
		until := int64(math.MaxInt64)
		if exit != nil {
			until = t.Total()
			exit.Totals[i] = until
		}
		streams.Go(func() { c.showOne(s, i, until, gone) })
	}
	streams.Wait()
	if exit == nil {
		if !isClosed(c.ended) {
			return // the host is gone
		}
		exit = c.exit
	}
	reply(s, wire.Reply{Exit: exit})
}

var offsets = []byte{wire.StdoutAt, wire.StderrAt}

// showOne sends one output until a number of its bytes are sent, the command has ended and all of its bytes are sent, or
// the host is gone. The output may go on with that of the next program.
func (c *command) showOne(s *wire.Stream, i int, until int64, gone <-chan struct{}) {
	const most = 32 << 10
	for sent := int64(0); ; {
		p, at, more := c.tails[i].From(sent, most)
		if isClosed(c.ended) {
			until = min(until, c.exit.Totals[i])
		}
		at = min(at, until)
		p = p[:min(int64(len(p)), until-at)]
		last := at == until
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

// expire kills a command that has reached its time limit.
func (c *command) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && !c.killing {
		c.timedOut = true
		c.killNow(c.req.GraceMS)
	}
}
