package guest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/wire"
)

// command is one command in flight.
type command struct {
	g      *guest
	s      *wire.Stream
	req    *wire.Exec
	w      *supervisor
	before evidence
	cpu    *processorTime // nil without a limit

	pressing *time.Timer // runs press when it fires; set when the worker has the command
	young    *time.Timer // ends the command's turn when it fires; set when the turn begins

	input  *patient  // our side of the command's standard input; nil without input
	output []*outlet // stdout and stderr, or only the terminal
	tails  []*ring.Tail
	totals [2]int64      // bytes sent live; each element is written by its outlet's pump
	ahead  *ahead        // sends output before the end; nil unless the command runs on
	typed  *queue        // input from the hosts
	exited chan struct{} // closed when the command's process has ended
	done   chan struct{} // closed when the worker is no longer needed

	id       int           // number of a detached command; otherwise 0
	began    time.Time     // set for a detached command only
	settled  chan struct{} // closed when the start has succeeded or failed; nil unless detached
	failed   *wire.Failed  // why the start failed; set before settled is closed
	answered bool          // the start's outcome was sent to the host
	ended    chan struct{} // closed when exit is set
	exit     *wire.Exit    // set for a detached command only
	earlier  *command      // which this one replaces if it starts; nil unless it is the service's own program

	attends bool // it is counted in guest.commands
	first   bool // no other command had processes when it began
	place   int  // how many commands had begun, with it

	kills int64 // guest.kills when it began

	userUS, systemUS int64 // CPU time of its processes that have ended, as the worker reported last

	mu       sync.Mutex
	killing  bool
	ordered  bool       // a host has killed it, also by a signal
	still    standstill // in use while the command is killed
	timedOut bool       // set before over
	over     bool       // orders are ignored from now on
}

// exec runs a command for the host. For a detached command it returns when the host stops watching.
func (g *guest) exec(s *wire.Stream, req *wire.Exec) {
	<-g.prepared
	c := newCommand(g, s, req)
	if req.Detach {
		if failed := g.enlist(c); failed != nil {
			reply(c.s, wire.Reply{Failed: failed})
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
		c.watch(s, false)
	}
}

func newCommand(g *guest, s *wire.Stream, req *wire.Exec) *command {
	return &command{g: g, s: s, req: req, typed: newQueue(), exited: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{})}
}

// begin hands the command to a worker when it is its turn. It returns nil on success.
func (c *command) begin() (failed *wire.Failed) {
	fail := func(kind string, err error) *wire.Failed { return &wire.Failed{What: kind, Text: err.Error()} }
	if len(c.req.Args) == 0 {
		return fail(wire.NoStart, errors.New("no command"))
	}
	if failed := c.limitProcessorTime(); failed != nil {
		return failed
	}
	c.attend()
	defer func() {
		if failed != nil {
			c.depart()
		}
	}()
	c.g.takeTurn()
	c.kills = c.g.kills.Load()
	c.young = time.AfterFunc(youngFor, c.g.endTurn) // the worker may be stopped before it reads the command
	defer func() {
		if failed != nil && c.young.Stop() {
			c.g.endTurn()
		}
	}()
	c.before = c.g.cgroup.read()
	childFDs, err := c.plumb()
	if err == nil {
		defer closeAll(childFDs)
		if err = c.handOver(childFDs); err == nil {
			return nil
		}
		c.closeOurs()
	}
	if (errors.Is(err, errNotReady) || errors.Is(err, unix.EMFILE)) && !c.quiet() { // this process's limit may be lowered
		return fail(wire.Hindered, err)
	}
	kind := kindOf(err)
	if kind == wire.Hindered {
		err = fmt.Errorf("%w: programs in the sandbox have changed a directory above it", err)
	}
	return fail(kind, err)
}

// settle reports to the host whether the command has started. Only the first call counts.
func (c *command) settle(failed *wire.Failed) {
	if c.answered {
		return
	}
	c.answered, c.failed = true, failed
	if failed != nil {
		c.blame(failed)
		c.depart() // before the host can send another command
		c.g.strike(c.id)
		reply(c.s, wire.Reply{Failed: failed})
	} else {
		reply(c.s, wire.Reply{Started: &wire.Started{ID: c.id}})
		if c.id == 0 && !c.req.Live {
			c.ahead = c.sendAhead()
		}
	}
	if c.settled != nil {
		close(c.settled)
	}
}

// reply sends a reply about a command.
func reply(s *wire.Stream, r wire.Reply) {
	_ = s.SendMessage(wire.Append(nil, &r)) // the host may be gone
}

// blame names the sandbox's own limit that was reached since the command began, if that may be why its start has failed.
func (c *command) blame(failed *wire.Failed) {
	if failed.What != wire.NoResources && failed.What != wire.Hindered {
		return
	}
	if failed.What == wire.Hindered && c.killedWithAll() {
		failed.What, failed.Text = wire.NoStart, "killed by the caller, with all processes of the service, before it started"
		return
	}
	now := c.g.cgroup.read()
	if limit, reached := c.g.processLimit(); now.pidsLimits > c.before.pidsLimits || reached {
		failed.What, failed.Text = wire.NoProcesses, failed.Text+": "+limit
		return
	}
	switch {
	case now.oomKills > c.before.oomKills:
		failed.What, failed.Text = wire.UsedUp, failed.Text+": the sandbox's memory limit is reached"
	case c.tampered():
		failed.What, failed.Text = wire.Hindered, failed.Text+": a process in the sandbox has changed the limits of what starts its commands"
	}
}

// tampered reports whether a process in the sandbox has changed the limits of this process or of the command's worker.
func (c *command) tampered() bool {
	if limitsOf(os.Getpid()) != c.g.limits {
		return true
	}
	return c.w != nil && !slices.Contains([]limits{c.g.limits, c.w.limits, {}}, limitsOf(c.w.pid)) // {}: it has ended
}

// run owns the command until it has ended.
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
		c.awaitStart() // the start must be reported before any output
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
	c.cpu.watch()
	end, survivors, idle := c.await(late, pump)
	close(c.exited)
	c.cpu.end()
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
		_ = c.input.Close() // unblocks a pending write
	}
	if killing && survivors < 0 {
		survivors, idle = c.awaitKilled(idle)
	}
	if end == nil && survivors < 0 && c.failed == nil {
		survivors = c.w.awaitSurvivors()
	}
	c.mu.Lock()
	c.still.end()
	c.mu.Unlock()
	close(c.done)
	c.pressing.Stop()
	c.leave(idle) // before the host gets the result, so that its next command finds the same worker idle
	if c.young.Stop() {
		c.g.endTurn()
	}
	if c.failed == nil {
		c.tell(end, max(survivors, 0))
	}
}

// awaitStart waits until the command has started or failed to start, or the worker is gone.
func (c *command) awaitStart() {
	for n := range c.w.notes {
		if c.hear(n) {
			return
		}
	}
}

// hear forwards the worker's report of the start. It returns false for any other note.
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

// await waits until the command's process has ended, the start has failed, or the worker is gone. It calls pump when
// late fires. end is nil unless the process has ended, and survivors is -1 unless a kill has failed.
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
			c.userUS, c.systemUS = n.UserUS, n.SystemUS
			return n.Ended, -1, n.Idle
		case n.Killed != nil:
			return nil, *n.Killed, false // the command could not be killed
		}
	}
	return nil, -1, true
}

// awaitKilled waits for the worker to report the outcome of a kill.
func (c *command) awaitKilled(idle bool) (survivors int, _ bool) {
	for n := range c.w.notes {
		switch {
		case n.Idle:
			idle = true
		case n.Killed != nil:
			c.userUS, c.systemUS = n.UserUS, n.SystemUS
			return *n.Killed, idle
		}
	}
	return c.w.awaitSurvivors(), true
}

// leave returns the worker to the pool as soon as it has no descendants. It drains and discards later output, so that
// a surviving child that writes is not killed by SIGPIPE.
func (c *command) leave(idle bool) {
	for _, o := range c.output {
		o.part()
	}
	select {
	case <-c.w.dead:
		c.w.retire()
		c.depart()
		return
	default:
	}
	if idle {
		c.depart()
		c.g.release(c.w)
		return
	}
	go func() {
		defer c.depart()
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

// tell sends the captured output, and then how the command ended.
func (c *command) tell(end *ended, survivors int) {
	after := c.g.cgroup.read()
	exit := &wire.Exit{
		Code: -1, Lost: end == nil, Survivors: survivors, Alone: c.alone(),
		OOMKills: after.oomKills - c.before.oomKills, PIDsLimits: after.pidsLimits - c.before.pidsLimits, Peak: c.g.cgroup.peak.read(),
		CPUUS: c.cpu.excess(),
	}
	c.mu.Lock()
	exit.Killed = c.ordered || c.killedWithAll()
	c.mu.Unlock()
	if end != nil {
		status := unix.WaitStatus(end.Status)
		exit.UserUS, exit.SystemUS, exit.MaxRSS = c.userUS, c.systemUS, end.MaxRSS
		if status.Signaled() {
			exit.Signal = int(status.Signal())
			exit.Code = 128 + exit.Signal
		} else {
			exit.Code = status.ExitStatus()
		}
	}
	sent := c.ahead.end()
	for i, t := range c.tails {
		kept, total := t.Bytes()
		exit.Totals[i] = total + c.totals[i]
		if c.id == 0 && !c.req.Live && !c.send(i, kept, total-int64(len(kept)), &sent[i]) {
			return
		}
	}
	if c.id == 0 {
		_ = c.s.SendLast(wire.Append(nil, &wire.Reply{Exit: exit})) // the host may be gone
		return
	}
	exit.WallUS = time.Since(c.began).Microseconds()
	exit.TimedOut = c.timedOut
	c.exit = exit
	close(c.ended)
}
