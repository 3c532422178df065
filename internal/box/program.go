package box

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// Program is what a service of a project runs: its own program, which the guest starts like a command, or nothing, if the
// service only waits for commands. It is for providers without an Engine. A nil Program is that of a service without a project.
type Program struct {
	Member  compose.Member
	sandbox *Sandbox
	service *Service
	log     *slog.Logger
	out     *ring.Tail

	life     context.Context // ends when the service is closed
	end      context.CancelFunc
	checking context.Context // ends when the start is over
	checked  context.CancelFunc
	running  sync.WaitGroup // its goroutines; Add is called before life ends

	mu      sync.Mutex
	runs    bool // it was started
	state   State
	again   bool          // the program is started again, or was
	restart wire.Restart  // when it is started again
	found   string        // the result of the last health check
	changed chan struct{} // closed at the next change of state
}

const (
	// mainOutput is how many bytes of a program's output are kept for errors about the start.
	mainOutput = 64 << 10
	// checkOutput is how many bytes of a health check's output are kept.
	checkOutput = 4 << 10
	// logSize is how many bytes of each output of a program the guest of a kept sandbox keeps. They count against the
	// sandbox's memory.
	logSize = 1 << 20
)

// NewProgram returns the program of a service, which ends with lives.
func NewProgram(lives context.Context, sb *Sandbox, s *Service, m compose.Member, log *slog.Logger) *Program {
	c := &Program{sandbox: sb, service: s, Member: m, log: log, out: ring.NewTail(mainOutput), changed: make(chan struct{})}
	c.life, c.end = context.WithCancel(lives)
	c.checking, c.checked = context.WithCancel(c.life)
	switch m.Restart {
	case "always", "unless-stopped":
		c.restart.Always = true
	case "on-failure":
		c.restart.Failed, c.restart.Most = true, m.MostRestarts
	}
	return c
}

// Volumes returns the volumes that the service mounts.
func (c *Program) Volumes() []compose.Volume {
	if c == nil {
		return nil
	}
	return c.Member.Volumes
}

// Launch starts the program.
func (c *Program) Launch(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if c.Member.Program == nil {
		c.running.Go(func() { c.checkHealth(c.checking) })
		return nil
	}
	p, err := c.begin(ctx)
	if err != nil {
		return c.sandbox.InService(ctx, c.service, fmt.Errorf("start %q: %w", c.Member.Program[0], err))
	}
	c.mu.Lock()
	c.runs = true
	c.mu.Unlock()
	c.running.Go(func() { c.keepRunning(c.life, p) })
	return nil
}

// begin starts the program once. That of a kept sandbox outlives this process.
func (c *Program) begin(ctx context.Context) (provider.ProcessBackend, error) {
	s := c.service
	cmd := fumehood.Cmd{Args: c.Member.Program, Dir: s.Info.Dir, KillRest: true, StdoutCap: logSize, StderrCap: logSize}
	tail := c.out
	if c.sandbox.Key != nil { // it delivers the output of the programs before again
		tail = ring.NewTail(mainOutput)
		c.mu.Lock()
		c.out = tail
		c.mu.Unlock()
	}
	out := func(_ fumehood.Stream, p []byte) { _, _ = tail.Write(p) }
	return s.Guests.Launch(ctx, cmd, out)
}

// Leave makes the guest of a kept sandbox go on with what keepRunning does.
func (c *Program) Leave(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.end()
	c.mu.Lock()
	runs, r := c.runs, c.restart
	c.mu.Unlock()
	if !runs {
		return nil
	}
	return c.service.Guests.Restart(ctx, r)
}

// keepRunning waits for the program's end, and starts it again as its restart policy says, until ctx ends.
func (c *Program) keepRunning(ctx context.Context, p provider.ProcessBackend) {
	for pause := time.Duration(0); ; {
		began := time.Now()
		checking, stop := context.WithCancel(ctx)
		unhook := context.AfterFunc(c.checking, stop) //nolint:contextcheck // it ends with the start, ctx later
		c.running.Go(func() { c.checkHealth(checking) })
		exit, err := p.Wait(context.WithoutCancel(ctx))
		unhook()
		stop()
		if err != nil || exit.Outcome == fumehood.Lost { // with its guest
			exit.Code = 128 + 9
		}
		again := false
		c.update(func() {
			again = ctx.Err() == nil && err == nil && exit.Outcome != fumehood.Lost && c.restart.Again(exit.Code)
			c.state = State{Died: true, Deaths: c.state.Deaths + 1, Exit: exit.Code}
			c.again = again
		})
		if !again {
			return
		}
		pause = wire.RestartPause(time.Since(began), pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		c.update(func() {
			if again = ctx.Err() == nil; again { // otherwise the guest starts it, and counts
				c.restart.Done++
			}
		})
		if !again {
			return
		}
		if p, err = c.begin(context.WithoutCancel(ctx)); err != nil { // canceled, it would be killed although leave was called
			if ctx.Err() == nil {
				c.log.Warn("a service's program cannot be started again", "sandbox", c.sandbox.Spec.Name, "service", c.Member.Name, "error", err)
			}
			c.update(func() { c.again, c.state.Deaths = false, c.state.Deaths+1 })
			return
		}
		c.update(func() { c.state.Died = false })
	}
}

// checkHealth checks the health until ctx ends. Failures in the start period do not count until a check has succeeded.
func (c *Program) checkHealth(ctx context.Context) {
	h := c.Member.Health
	if h == nil {
		return
	}
	began, failures, succeeded := time.Now(), 0, false
	for {
		starting := !succeeded && time.Since(began) < h.StartPeriod
		pause := h.Interval
		if starting && h.StartInterval > 0 {
			pause = h.StartInterval
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		starting = !succeeded && time.Since(began) < h.StartPeriod
		ok, found := c.checkOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		health := ""
		switch {
		case ok:
			failures, succeeded, health = 0, true, Healthy
		case !starting:
			if failures++; failures >= h.Retries {
				health = Unhealthy
			}
		}
		c.update(func() {
			c.found = found
			if health != "" && !c.state.Died {
				c.state.Health = health
			}
		})
	}
}

// checkOnce runs the health check. It returns its output and exit code too.
func (c *Program) checkOnce(ctx context.Context) (ok bool, found string) {
	out := ring.NewTail(checkOutput)
	cmd := fumehood.Cmd{Args: c.Member.Health.Test, Dir: c.service.Info.Dir, KillRest: true, Grace: fumehood.NoGrace}
	p, err := c.service.Guests.Check(ctx, cmd, func(_ fumehood.Stream, p []byte) { _, _ = out.Write(p) })
	if err != nil {
		return false, err.Error()
	}
	within, cancel := context.WithTimeout(ctx, c.Member.Health.Timeout)
	defer cancel()
	stop := context.AfterFunc(within, func() { p.Kill(context.WithoutCancel(ctx)) })
	exit, err := p.Wait(context.WithoutCancel(ctx))
	late := !stop()
	kept, _ := out.Bytes()
	switch {
	case err != nil:
		return false, err.Error()
	case late:
		return false, fmt.Sprintf("it has not ended after %v: %s", c.Member.Health.Timeout, kept)
	}
	return exit.Outcome == fumehood.Exited && exit.Code == 0, fmt.Sprintf("exit code %d: %s", exit.Code, bytes.TrimSpace(kept))
}

// update changes the state.
func (c *Program) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Now returns what has become of the program, and a channel that is closed when that changes; nil for a nil Program.
func (c *Program) Now() (State, <-chan struct{}) {
	if c == nil {
		return State{}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// Runs reports whether the program was started.
func (c *Program) Runs() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs
}

// Settle ends the health checks, when the sandbox has started.
func (c *Program) Settle() {
	if c != nil {
		c.checked()
	}
}

// End ends what Launch has begun in this process. Wait returns when it has ended, after the guests are closed.
func (c *Program) End() {
	if c != nil {
		c.end()
	}
}

// Wait waits for what End ends.
func (c *Program) Wait() {
	if c != nil {
		c.running.Wait()
	}
}

// Check describes the health check; nil if there is none.
func (c *Program) Check() *Check {
	if c == nil || c.Member.Health == nil {
		return nil
	}
	h := c.Member.Health
	return &Check{StartPeriod: h.StartPeriod, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
}

// Restarts reports whether the program is started again.
func (c *Program) Restarts() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.again
}

// Evidence returns the result of the last health check, and the last lines of the program's output.
func (c *Program) Evidence(lines int) (check, log string) {
	if c == nil {
		return "", ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, _, _ := c.out.From(0, mainOutput)
	all := strings.SplitAfter(strings.TrimRight(fumehood.Output{Bytes: text}.Text(), "\n"), "\n")
	return c.found, strings.Join(all[max(0, len(all)-lines):], "")
}

// InService adds a service to the error of its start, if the sandbox has several. A missing user or program is an
// ErrConfig: an ErrNotStarted is the error of a command.
func (s *Sandbox) InService(ctx context.Context, svc *Service, err error) error {
	err = svc.Guests.Explain(ctx, err)
	notStarted := errors.Is(err, fumehood.ErrNotStarted)
	if err == nil || len(s.Services) == 1 && !notStarted {
		return err
	}
	e := fumehood.Error{Class: fumehood.ClassOf(err), Err: err}
	if typed, ok := errors.AsType[*fumehood.Error](err); ok {
		e = *typed
	}
	if notStarted {
		e.Class = fumehood.ErrConfig
	}
	if len(s.Services) > 1 {
		e.Service = svc.Info.Name
	}
	return &e
}
