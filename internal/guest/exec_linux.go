package guest

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/ring"
	"github.com/fumehood/fumehood/internal/wire"
)

// command is one command in flight.
type command struct {
	g      *guest
	s      *wire.Stream
	req    *wire.Exec
	w      *supervisor
	before evidence

	pressing *time.Timer // presses the worker once it fires; set when the worker has got the command

	input  *patient  // the command's standard input, from our side; nil for none
	output []*outlet // stdout and stderr; with a terminal, the terminal alone
	tails  []*ring.Tail
	totals [2]int64      // bytes that were sent live; each is its outlet's
	typed  *queue        // what the hosts wrote for input
	exited chan struct{} // closed when the command's process has ended
	done   chan struct{} // closed when nothing more is wanted of the worker

	id      int           // of a detached command; else 0
	began   time.Time     // of a detached command
	settled chan struct{} // closed when it is known whether it has started; nil unless it is detached
	failed  *wire.Failed  // why it has not; set before settled is closed
	told    bool          // the host knows
	ended   chan struct{} // closed when exit is set
	exit    *wire.Exit    // of a detached command

	mu       sync.Mutex
	killing  bool
	still    standstill // while it is killed
	timedOut bool       // set before over
	over     bool       // no orders are taken any more
}

// exec runs a command for the host.
func (g *guest) exec(s *wire.Stream, req *wire.Exec) {
	c := &command{g: g, s: s, req: req, typed: newQueue(), exited: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{})}
	if req.Detach {
		if failed := g.enlist(c); failed != nil {
			answer(c.s, wire.Reply{Failed: failed})
			return
		}
	}
	if failed := c.begin(); failed != nil {
		close(c.done)
		c.settle(failed)
		return
	}
	if c.id == 0 {
		c.run()
		return
	}
	go c.run()
	<-c.settled
	if c.failed == nil {
		c.watch(s)
	}
}

// begin hands the command to a worker.
func (c *command) begin() *wire.Failed {
	fail := func(what string, err error) *wire.Failed { return &wire.Failed{What: what, Text: err.Error()} }
	if len(c.req.Args) == 0 {
		return fail(wire.NoStart, errors.New("no command"))
	}
	c.before = c.g.cgroup.read()
	theirs, err := c.plumb()
	if err != nil {
		return fail(wire.NoResources, err)
	}
	defer c.closeAll(theirs)
	if err := c.handOver(theirs); err != nil {
		c.closeOurs()
		return fail(wire.NoResources, err)
	}
	return nil
}

// settle tells the host whether the command has started. The first time counts.
func (c *command) settle(failed *wire.Failed) {
	if c.told {
		return
	}
	c.told, c.failed = true, failed
	if failed != nil {
		c.blame(failed)
		c.g.strike(c.id)
		answer(c.s, wire.Reply{Failed: failed})
	} else {
		answer(c.s, wire.Reply{Started: &wire.Started{ID: c.id}})
	}
	if c.settled != nil {
		close(c.settled)
	}
}

// blame tells a start that failed since the sandbox's own limits were met from one that failed otherwise.
func (c *command) blame(failed *wire.Failed) {
	if failed.What != wire.NoResources {
		return
	}
	switch now := c.g.cgroup.read(); {
	case now.pidsLimits > c.before.pidsLimits:
		failed.What, failed.Text = wire.UsedUp, failed.Text+": the sandbox has as many processes as it may have"
	case now.oomKills > c.before.oomKills:
		failed.What, failed.Text = wire.UsedUp, failed.Text+": the sandbox has as much memory as it may have"
	}
}

// closeAll closes what is open of files, and marks it closed.
func (c *command) closeAll(files []*os.File) {
	for i, f := range files {
		if f != nil {
			_ = f.Close()
			files[i] = nil
		}
	}
}

// run owns the command from its start to its end.
func (c *command) run() {
	defer c.typed.close()
	if c.input != nil {
		go c.feed()
	}
	if c.id == 0 {
		go c.listen()
	} else if c.req.WallMS > 0 {
		defer time.AfterFunc(time.Duration(c.req.WallMS)*time.Millisecond, c.expire).Stop()
	}
	if c.req.Live {
		c.awaitStart() // whose word comes before any output
	}
	var pumps sync.WaitGroup
	pump := func() {
		for _, o := range c.output {
			o.await()
			pumps.Go(o.pump)
		}
	}
	var late <-chan time.Time
	if c.id == 0 && !c.req.Live && c.req.Terminal == nil {
		t := time.NewTimer(pumpAfter)
		defer t.Stop()
		late = t.C
	} else {
		pump()
	}
	end, survivors, idle := c.await(late, pump)
	close(c.exited)
	if c.req.KillRest && end != nil && !idle {
		c.kill(0)
	}
	for _, o := range c.output {
		if o.finish() {
			o.await()
			pumps.Go(o.pump)
		}
		if o.file != nil {
			o.file.readUntil(time.Now().Add(drainWithin))
		}
	}
	pumps.Wait()
	c.mu.Lock()
	c.over = true
	killing := c.killing
	c.mu.Unlock()
	if c.input != nil && c.req.Terminal == nil {
		_ = c.input.Close() // ends who waits to write to it
	}
	if killing && survivors < 0 {
		survivors, idle = c.awaitKilled(idle)
	}
	if end == nil && survivors < 0 && c.failed == nil {
		survivors = c.w.left()
	}
	c.mu.Lock()
	c.still.end()
	c.mu.Unlock()
	close(c.done)
	c.pressing.Stop()
	c.leave(idle) // before the host knows, so that its next command finds the same worker
	if c.failed == nil {
		c.tell(end, max(survivors, 0))
	}
}

// awaitStart waits until it is known whether the command has started.
func (c *command) awaitStart() {
	for n := range c.w.notes {
		if c.hear(n) {
			return
		}
	}
}

// hear passes the worker's word about the start on; false of a note that is about something else.
func (c *command) hear(n note) bool {
	if !n.Started && n.Failed == nil {
		return false
	}
	if n.Failed != nil {
		n.Failed.Text = wire.Clip(n.Failed.Text)
	}
	c.settle(n.Failed)
	return true
}

// await waits until the command's process has ended, has turned out not to start, or the worker is gone; and calls pump
// when it is late.
func (c *command) await(late <-chan time.Time, pump func()) (end *ended, survivors int, idle bool) {
	for c.failed == nil {
		var n note
		var ok bool
		select {
		case <-late:
			pump()
			continue
		case n, ok = <-c.w.notes:
		}
		switch {
		case !ok:
			c.settle(nil) // it may have run
			return nil, -1, true
		case c.hear(n):
		case n.Ended != nil:
			return n.Ended, -1, n.Idle
		case n.Killed != nil:
			return nil, *n.Killed, false // it could not be killed
		}
	}
	return nil, -1, true
}

// awaitKilled waits for the worker's word on a kill.
func (c *command) awaitKilled(idle bool) (survivors int, _ bool) {
	for n := range c.w.notes {
		switch {
		case n.Idle:
			idle = true
		case n.Killed != nil:
			return *n.Killed, idle
		}
	}
	return c.w.left(), true
}

// leave gives the worker back as soon as it has no descendant left, and the outputs to nobody: a child
// that lives on may write, and is not ended by that.
func (c *command) leave(idle bool) {
	for _, o := range c.output {
		o.part()
	}
	select {
	case <-c.w.dead:
		c.w.retire()
		return
	default:
	}
	if idle {
		c.g.release(c.w)
		return
	}
	go func() {
		for !idle {
			n, ok := <-c.w.notes
			if !ok {
				c.w.retire()
				return
			}
			idle = n.Idle
		}
		c.g.release(c.w)
	}()
}

// tell sends what was kept of the output, and how the command ended.
func (c *command) tell(end *ended, survivors int) {
	after := c.g.cgroup.read()
	exit := &wire.Exit{
		Code: -1, Lost: end == nil, Survivors: survivors,
		OOMKills: after.oomKills - c.before.oomKills, PIDsLimits: after.pidsLimits - c.before.pidsLimits, Peak: after.peak,
	}
	if end != nil {
		status := unix.WaitStatus(end.Status)
		exit.UserUS, exit.SystemUS, exit.MaxRSS = end.UserUS, end.SystemUS, end.MaxRSS
		if status.Signaled() {
			exit.Signal = int(status.Signal())
			exit.Code = 128 + exit.Signal
		} else {
			exit.Code = status.ExitStatus()
		}
	}
	for i, t := range c.tails {
		kept, total := t.Bytes()
		exit.Totals[i] = total + c.totals[i]
		if c.id == 0 && !c.req.Live && c.s.Send(channels[i], kept) != nil {
			return
		}
	}
	if c.id == 0 {
		if text, err := json.Marshal(wire.Reply{Exit: exit}); err == nil {
			_ = c.s.SendLast(text) // a host that is gone needs no answer
		}
		return
	}
	exit.WallUS = time.Since(c.began).Microseconds()
	exit.TimedOut = c.timedOut
	c.exit = exit
	close(c.ended)
}

// listen takes the host's input and orders until the stream or the command has ended.
func (c *command) listen() {
	defer c.typed.close()
	for {
		ev, err := c.s.Receive()
		if err != nil {
			c.order(wire.Order{Kill: true}) // nobody is interested any more
			return
		}
		c.take(c.s, ev)
	}
}

// take handles what a host sends about the command on a stream, and reports whether it wants to follow. A program that
// does not read must not hold orders up.
func (c *command) take(s *wire.Stream, ev wire.Event) (follow bool) {
	switch {
	case ev.Type == wire.Message:
		var o wire.Order
		if json.Unmarshal(ev.Payload, &o) == nil {
			c.order(o)
		}
		return o.Follow
	case ev.Channel != wire.Stdin || c.input == nil:
		s.Consumed(len(ev.Payload))
	case !c.typed.put(piece{ev.Payload, s}): // empty at the end of input
		s.Consumed(len(ev.Payload)) // the command has ended
	}
	return false
}

// feed writes the input to the program.
func (c *command) feed() {
	var last byte // of what was typed
	for {
		p, ok := c.typed.take()
		if !ok {
			break
		}
		switch {
		case len(p.data) > 0:
			_, _ = c.input.Write(p.data) // a program that reads no more is no failure
			last = p.data[len(p.data)-1]
			p.from.Consumed(len(p.data))
		case c.req.Terminal == nil:
			_ = c.input.Close()
		default:
			_, _ = c.input.Write([]byte(wire.EndOfInput(last)))
		}
	}
	if c.req.Terminal == nil {
		_ = c.input.Close()
	}
}

// order does what the host wants done about the command, unless it is over.
func (c *command) order(o wire.Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	switch {
	case o.Kill:
		c.killNow(c.req.GraceMS)
	case o.Signal > 0:
		_ = post(c.w.socket, task{Signal: o.Signal}, nil)
	case o.Resize != nil && c.req.Terminal != nil:
		_ = wire.Control(c.input.file, func(fd int) error { return setSize(fd, *o.Resize) }) // it has ended just now
	}
}

// kill has the worker kill all that it owns, with a grace in milliseconds.
func (c *command) kill(grace int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killNow(grace)
}

// killNow is kill with c.mu held. The first time counts.
func (c *command) killNow(grace int64) {
	if c.killing {
		return
	}
	c.killing = true
	if grace == 0 {
		c.standStill()
	} else {
		time.AfterFunc(time.Duration(grace)*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.standStill()
		})
	}
	go c.g.press(c.w, pressFirst, c.done)
	_ = post(c.w.socket, task{Kill: &grace}, nil) // a worker that is gone has nothing to kill
}

// standStill has all in the container stand still while the worker kills, where that are many. c.mu is held.
func (c *command) standStill() {
	if c.g.cgroup.tasks.read() > crowd {
		c.still.begin(c.w.pid)
	}
}
