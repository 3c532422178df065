package guest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lazaret/lazaret/internal/ring"
	"github.com/lazaret/lazaret/internal/wire"
)

// drainWithin is how long output is waited for after the command's process has ended, when a child of it
// holds the output open. What was written before the end is never lost by it.
const drainWithin = 300 * time.Millisecond

// pipeSize is the most that a pipe of ours holds (the kernel's default; nobody inside can raise it beyond
// /proc/sys/fs/pipe-max-size, 1 MiB).
const pipeSize = 1 << 20

// command is one command in flight.
type command struct {
	g      *guest
	s      *wire.Stream
	req    *wire.Exec
	w      *supervisor
	before evidence

	input  *os.File   // the command's standard input, from our side; nil for none
	output []*os.File // stdout and stderr from our side; with a terminal, the terminal alone
	tails  []*ring.Tail
	totals [2]int64      // bytes that were sent live; each is its pump's
	done   chan struct{} // closed when the host has been told how it ended

	mu      sync.Mutex
	killing bool
	over    bool // no orders are taken any more
}

// exec runs a command for the host.
func (g *guest) exec(s *wire.Stream, req *wire.Exec) {
	c := &command{g: g, s: s, req: req, done: make(chan struct{})}
	defer close(c.done)
	fail := func(what string, err error) { c.reply(wire.Reply{Failed: &wire.Failed{What: what, Text: err.Error()}}) }
	if len(req.Args) == 0 {
		fail(wire.NoStart, errors.New("no command"))
		return
	}
	theirs, err := c.plumb()
	if err != nil {
		fail(wire.NoResources, err)
		return
	}
	defer c.closeAll(theirs)
	failed, err := c.handOver(theirs)
	switch {
	case errors.Is(err, errLost):
		c.closeOurs()
		c.reply(wire.Reply{Started: &wire.Started{}}) // it may have run
		c.tell(nil, c.w.left())
		return
	case err != nil:
		c.closeOurs()
		fail(wire.NoResources, err)
		return
	case failed != nil:
		c.closeOurs()
		g.release(c.w)
		c.reply(wire.Reply{Failed: failed})
		return
	}
	c.closeAll(theirs)
	c.reply(wire.Reply{Started: &wire.Started{}})
	c.run()
}

func (c *command) reply(r wire.Reply) { answer(c.s, r) }

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
	go c.listen()
	var pumps sync.WaitGroup
	for i, f := range c.output {
		pumps.Go(func() { c.pump(f, i) })
	}
	end, survivors, idle := c.await()
	for _, f := range c.output {
		_ = f.SetReadDeadline(time.Now().Add(drainWithin))
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
	if end == nil && survivors < 0 {
		survivors = c.w.left()
	}
	c.tell(end, max(survivors, 0))
	c.leave(idle)
}

// await waits until the command's process has ended, or the worker is gone.
func (c *command) await() (end *ended, survivors int, idle bool) {
	survivors = -1
	for n := range c.w.notes {
		switch {
		case n.Ended != nil:
			return n.Ended, survivors, false
		case n.Killed != nil:
			survivors = *n.Killed
			return nil, survivors, false // it could not be killed
		}
	}
	return nil, survivors, true
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
	for _, f := range c.output {
		_ = f.SetReadDeadline(time.Time{})
		go func() {
			_, _ = io.Copy(io.Discard, f)
			_ = f.Close()
		}()
	}
	select {
	case <-c.w.dead:
		c.w.retire()
		return
	default:
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
		if !c.req.Live && c.s.Send(channels[i], kept) != nil {
			return
		}
	}
	c.reply(wire.Reply{Exit: exit})
}

var channels = []byte{wire.Stdout, wire.Stderr}

// pieces are buffers for output, two for each command that runs.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// pump moves one output to the host, or to where its end is kept, until it is at its end; or, when the
// command has ended and drainWithin is over, until there is nothing in it.
func (c *command) pump(f *os.File, i int) {
	piece := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	buf := piece[:]
	for {
		n, err := f.Read(buf)
		c.took(i, buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.rest(f, i, buf)
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *command) took(i int, p []byte) {
	if len(p) == 0 {
		return
	}
	if !c.req.Live {
		_, _ = c.tails[i].Write(p) // it never fails
		return
	}
	c.totals[i] += int64(len(p))
	_ = c.s.Send(channels[i], p) // to a host that is gone: the output is drained all the same
}

// rest takes what is in a pipe now, at most as much as one can hold.
func (c *command) rest(f *os.File, i int, buf []byte) {
	_ = f.SetReadDeadline(time.Time{})
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for left := pipeSize; left > 0; {
		n := 0
		rerr := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buf)
			return true
		})
		if rerr != nil || err != nil || n <= 0 {
			return
		}
		c.took(i, buf[:n])
		left -= n
	}
}

// listen takes the host's input and orders until the stream or the command has ended.
func (c *command) listen() {
	input := newQueue() // a program that does not read must not hold orders up
	defer input.close()
	go c.feed(input)
	for {
		ev, err := c.s.Receive()
		if err != nil {
			c.order(wire.Order{Kill: true}) // nobody is interested any more
			return
		}
		switch {
		case ev.Type == wire.Message:
			var o wire.Order
			if json.Unmarshal(ev.Payload, &o) == nil {
				c.order(o)
			}
		case ev.Channel != wire.Stdin || c.input == nil:
			c.s.Consumed(len(ev.Payload))
		default:
			input.put(ev.Payload) // empty at the end of input
		}
	}
}

// feed writes the input to the program.
func (c *command) feed(input *queue) {
	for {
		p, ok := input.take()
		if !ok {
			break
		}
		switch {
		case len(p) > 0:
			_, _ = c.input.Write(p) // a program that reads no more is no failure
			c.s.Consumed(len(p))
		case c.req.Terminal == nil:
			_ = c.input.Close()
		default:
			_, _ = c.input.Write([]byte{4}) // what Ctrl-D types: the end of input
		}
	}
	if c.input != nil && c.req.Terminal == nil {
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
	case o.Kill && !c.killing:
		c.killing = true
		go c.g.press(c.w, pressFirst, c.done)
		_ = post(c.w.socket, task{Kill: &c.req.GraceMS}, nil) // a worker that is gone has nothing to kill
	case o.Signal > 0:
		_ = post(c.w.socket, task{Signal: o.Signal}, nil)
	case o.Resize != nil && c.req.Terminal != nil:
		resize(c.input, *o.Resize)
	}
}
