package session

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/ring"
	"github.com/fumehood/fumehood/provider"
)

// scripted streams a command with its set-up.
func (r *Runtime) scripted(ctx context.Context, run *run) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		h := newHalves(run)
		run.cmd.StdoutCap, run.cmd.StderrCap = fumehood.KeepNone, fumehood.KeepNone // the halves keep them
		p, err := r.start(ctx, run)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer r.join(ctx, cancel, p)
		c := watchClock(r.s.env.Setup.Timeout, run.timeout, func() { _ = p.Kill(ctx) }) // how it ends is told
		defer c.stop()
		for ev, err := range p.Events() {
			var out []Event
			switch {
			case err != nil:
				yield(Event{}, err)
				return
			case ev.Result != nil:
				late := c.stop()
				out = append(h.rest(), Event{Result: h.result(ev.Result, late)})
			default:
				out = h.take(ev.Stream, ev.Data)
			}
			if h.passed() {
				c.pass()
			}
			for _, e := range out {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// halves take a script's output apart, and keep the end of each of the four.
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

func (h *halves) take(s fumehood.Stream, p []byte) []Event {
	setup, command := h.split[s].take(p)
	return h.events(s, setup, command)
}

// rest is what is held back at the end.
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
			_, _ = h.kept[s][half.Phase].Write(half.Data) // it never fails
			events = append(events, half)
		}
	}
	return events
}

// passed reports whether the command has begun. One stream's marker tells it: the set-up may have closed
// the other.
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
	if late {
		r.Outcome, r.ExitCode, r.Signal, r.Reason = fumehood.TimedOut, -1, 0, ""
	}
	return r
}

// clock limits the time of a set-up and then of its command.
type clock struct {
	passOnce, stopOnce sync.Once
	passed, stopped    chan struct{}
	late               chan bool // gets the verdict, once
	verdict            bool
}

// watchClock calls kill where a limit passes; 0 and fumehood.NoLimit are none.
func watchClock(setup, command time.Duration, kill func()) *clock {
	c := &clock{passed: make(chan struct{}), stopped: make(chan struct{}), late: make(chan bool, 1)}
	go func() {
		late := c.wait(setup, c.passed) || c.wait(command, nil)
		if late {
			kill()
		}
		c.late <- late
	}()
	return c
}

// wait returns true when the limit passes before next or the end comes.
func (c *clock) wait(limit time.Duration, next <-chan struct{}) bool {
	var passes <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		passes = t.C
	}
	select {
	case <-passes:
		return true
	case <-next:
	case <-c.stopped:
	}
	return false
}

// pass says that the command has begun.
func (c *clock) pass() { c.passOnce.Do(func() { close(c.passed) }) }

// stop ends the clock, and reports whether it was too late.
func (c *clock) stop() bool {
	c.stopOnce.Do(func() {
		close(c.stopped)
		c.verdict = <-c.late
	})
	return c.verdict
}
