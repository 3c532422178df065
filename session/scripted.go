package session

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/provider"
)

// events streams the events of a command and, if it has one, of its setup.
func (r *Runtime) events(ctx context.Context, run *run) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		list := bare
		var h *halves
		if run.marker == "" {
			run.cmd.Timeout = run.timeout
		} else {
			h = newHalves(run)
			run.cmd.StdoutCap, run.cmd.StderrCap = fumehood.KeepNone, fumehood.KeepNone // the halves keep the output
		}
		run.cmd.Events = true
		p, err := r.start(ctx, run)
		if err != nil {
			yield(Event{}, err)
			return
		}
		run.started = true
		defer r.join(ctx, cancel, p)
		if h != nil {
			c := watchClock(r.s.env.Setup.Timeout, run.timeout, func() { _ = p.Kill(ctx) }) // the result reports how it ends
			defer c.stop()
			list = func(ev fumehood.Event) []Event { return h.convert(ev, c) }
		}
		for ev, err := range p.Events() {
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range list(ev) {
				r.nameEnd(e.Result)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// nameEnd sets the reason of a command that ended because the caller killed or cleaned up the runtime. Nil has none.
func (r *Runtime) nameEnd(res *Result) {
	if res == nil || res.Outcome != fumehood.Lost && (res.Outcome != fumehood.Signaled || res.Reason != "") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != "" {
		res.Reason = r.ended + " by the caller"
	}
}

// bare converts an event of a command without a setup.
func bare(ev fumehood.Event) []Event {
	if ev.Result != nil {
		return []Event{{Result: resultOf(ev.Result)}}
	}
	return []Event{{Phase: Command, Stream: ev.Stream, Data: ev.Data}}
}

// halves split a script's output into setup and command, and keep the tail of each of the four outputs.
type halves struct {
	split [3]splitter             // by stream
	kept  [3]map[Phase]*ring.Tail // by stream
}

func newHalves(run *run) *halves {
	h := &halves{}
	for _, s := range []fumehood.Stream{fumehood.Stdout, fumehood.Stderr} {
		h.split[s].marker = []byte(run.marker)
		limit := provider.OutputCap(&run.cmd, s)
		h.kept[s] = map[Phase]*ring.Tail{Setup: ring.NewTail(limit), Command: ring.NewTail(limit)}
	}
	return h
}

// convert converts an event of a script whose time limits the clock enforces.
func (h *halves) convert(ev fumehood.Event, c *clock) []Event {
	if ev.Result != nil {
		late := c.stop()
		return append(h.rest(), Event{Result: h.result(ev.Result, late)})
	}
	setup, command := h.split[ev.Stream].take(ev.Data)
	if h.passed() {
		c.pass()
	}
	return h.events(ev.Stream, setup, command)
}

// rest returns the output that was held back when the script ended.
func (h *halves) rest() (events []Event) {
	for _, s := range []fumehood.Stream{fumehood.Stdout, fumehood.Stderr} {
		setup, command := h.split[s].rest()
		events = append(events, h.events(s, setup, command)...)
	}
	return events
}

func (h *halves) events(s fumehood.Stream, setup, command []byte) (events []Event) {
	for _, half := range []Event{{Phase: Setup, Stream: s, Data: setup}, {Phase: Command, Stream: s, Data: command}} {
		if len(half.Data) > 0 {
			_, _ = h.kept[s][half.Phase].Write(half.Data) // never fails
			events = append(events, half)
		}
	}
	return events
}

// passed reports whether the command has begun. The marker on one stream is enough: the setup may have closed the
// other.
func (h *halves) passed() bool {
	return h.split[fumehood.Stdout].passed || h.split[fumehood.Stderr].passed
}

func (h *halves) result(res *fumehood.Result, late bool) *Result {
	out := func(s fumehood.Stream, phase Phase) fumehood.Output {
		kept, total := h.kept[s][phase].Bytes()
		return fumehood.Output{Bytes: kept, Total: total}
	}
	r := resultOf(res)
	r.Stdout, r.Stderr = out(fumehood.Stdout, Command), out(fumehood.Stderr, Command)
	r.SetupStdout, r.SetupStderr = out(fumehood.Stdout, Setup), out(fumehood.Stderr, Setup)
	r.SetupEnded = !h.passed()
	switch {
	case late && r.Outcome == fumehood.CPUTimeExceeded: // before it was killed
	case late && r.Outcome == fumehood.OutOfMemory:
		r.ExitCode, r.Reason = -1, strings.Replace(r.Reason, "was killed by the caller", "was killed at its timeout", 1)
	case late:
		r.Outcome, r.ExitCode, r.Signal, r.Reason = fumehood.TimedOut, -1, 0, ""
	}
	return r
}

// clock limits the time of a setup and then of its command. Its methods must not be called concurrently.
type clock struct {
	command time.Duration
	kill    func()
	timer   *time.Timer // nil if no limit runs
	passed  bool
	killed  chan struct{} // closed when kill has returned
}

// watchClock returns a clock that calls kill when a limit has passed. 0 and fumehood.NoLimit mean no limit.
func watchClock(setup, command time.Duration, kill func()) *clock {
	c := &clock{command: command, kill: kill, killed: make(chan struct{})}
	c.start(setup)
	return c
}

func (c *clock) start(limit time.Duration) {
	if limit <= 0 {
		return
	}
	c.timer = time.AfterFunc(limit, func() {
		defer close(c.killed)
		c.kill()
	})
}

// inTime stops the current limit, and reports whether it had not passed yet.
func (c *clock) inTime() bool {
	if c.timer != nil && !c.timer.Stop() {
		return false
	}
	c.timer = nil
	return true
}

// pass records that the command has begun, and starts its limit.
func (c *clock) pass() {
	if !c.passed && c.inTime() {
		c.start(c.command)
	}
	c.passed = true
}

// stop stops the clock, and reports whether a limit had passed.
func (c *clock) stop() bool {
	if c.inTime() {
		return false
	}
	<-c.killed
	return true
}
