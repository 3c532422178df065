//go:build amd64 || arm64

package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// program is what a service of a project runs: its own program, which the guest starts like a command, or nothing, if the
// service only waits for commands.
type program struct {
	service *service
	member  compose.Member
	disk    int64 // the size of a volume in bytes
	out     *ring.Tail

	life     context.Context // ends when the service is closed
	end      context.CancelFunc
	checking context.Context // ends when the start is over
	checked  context.CancelFunc
	running  sync.WaitGroup // its goroutines; Add is called before life ends

	mu      sync.Mutex
	state   box.State
	again   bool          // the program is started again, or was
	restart wire.Restart  // when it is started again
	found   string        // the result of the last health check
	changed chan struct{} // closed at the next change of state
}

const (
	// mainOutput is how many bytes of a program's output are kept for errors about the start.
	mainOutput = 64 << 10
	// logSize is how many bytes of each output of a program the guest of a kept sandbox keeps. They count against the
	// sandbox's memory.
	logSize = 1 << 20
)

func newProgram(s *service, m compose.Member, disk int64) *program {
	c := &program{service: s, member: m, disk: disk, out: ring.NewTail(mainOutput), changed: make(chan struct{})}
	c.life, c.end = context.WithCancel(s.sb.p.lives)
	c.checking, c.checked = context.WithCancel(c.life)
	switch m.Restart {
	case "always", "unless-stopped":
		c.restart.Always = true
	case "on-failure":
		c.restart.Failed, c.restart.Most = true, m.MostRestarts
	}
	return c
}

// volumes returns the volumes that the service mounts; none without a project.
func (c *program) volumes() []compose.Volume {
	if c == nil {
		return nil
	}
	return c.member.Volumes
}

// startProgram starts the service's own program, if it has one.
func (s *service) startProgram(ctx context.Context) error {
	if s.main == nil {
		return nil
	}
	return s.main.launch(ctx)
}

// launch starts the program.
func (c *program) launch(ctx context.Context) error {
	if c.member.Program == nil {
		c.running.Go(func() { c.checkHealth(c.checking) })
		return nil
	}
	p, err := c.begin(ctx)
	if err != nil {
		return c.service.sb.inService(ctx, c.service, fmt.Errorf("start %q: %w", c.member.Program[0], err))
	}
	c.service.runs = true
	c.running.Go(func() { c.keepRunning(c.life, p) })
	return nil
}

// begin starts the program once. That of a kept sandbox outlives this process.
func (c *program) begin(ctx context.Context) (provider.ProcessBackend, error) {
	s := c.service
	cmd := fumehood.Cmd{Args: c.member.Program, Dir: s.config.Dir, KillRest: true, StdoutCap: logSize, StderrCap: logSize}
	tail := c.out
	if s.sb.Key != nil { // it delivers the output of the programs before again
		tail = ring.NewTail(mainOutput)
		c.mu.Lock()
		c.out = tail
		c.mu.Unlock()
	}
	out := func(_ fumehood.Stream, p []byte) { _, _ = tail.Write(p) }
	return s.Guests.Launch(ctx, cmd, out)
}

// leave makes the guest of a kept sandbox go on with what keepRunning does.
func (c *program) leave(ctx context.Context) error {
	c.end()
	if !c.service.runs {
		return nil
	}
	c.mu.Lock()
	r := c.restart
	c.mu.Unlock()
	return c.service.Guests.Restart(ctx, r)
}

// keepRunning waits for the program's end, and starts it again as its restart policy says, until ctx ends.
func (c *program) keepRunning(ctx context.Context, p provider.ProcessBackend) {
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
			c.state = box.State{Died: true, Deaths: c.state.Deaths + 1, Exit: exit.Code}
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
				c.service.sb.p.log.Warn("a service's program cannot be started again", "sandbox", c.service.sb.Spec.Name, "service", c.member.Name, "error", err)
			}
			c.update(func() { c.again, c.state.Deaths = false, c.state.Deaths+1 })
			return
		}
		c.update(func() { c.state.Died = false })
	}
}

// checkHealth checks the health until ctx ends. Failures in the start period do not count until a check has succeeded.
func (c *program) checkHealth(ctx context.Context) {
	h := c.member.Health
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
			failures, succeeded, health = 0, true, box.Healthy
		case !starting:
			if failures++; failures >= h.Retries {
				health = box.Unhealthy
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
func (c *program) checkOnce(ctx context.Context) (ok bool, found string) {
	out := ring.NewTail(complaint)
	cmd := fumehood.Cmd{Args: c.member.Health.Test, Dir: c.service.config.Dir, KillRest: true, Grace: fumehood.NoGrace}
	p, err := c.service.Guests.Check(ctx, cmd, func(_ fumehood.Stream, p []byte) { _, _ = out.Write(p) })
	if err != nil {
		return false, err.Error()
	}
	within, cancel := context.WithTimeout(ctx, c.member.Health.Timeout)
	defer cancel()
	stop := context.AfterFunc(within, func() { p.Kill(context.WithoutCancel(ctx)) })
	exit, err := p.Wait(context.WithoutCancel(ctx))
	late := !stop()
	kept, _ := out.Bytes()
	switch {
	case err != nil:
		return false, err.Error()
	case late:
		return false, fmt.Sprintf("it has not ended after %v: %s", c.member.Health.Timeout, kept)
	}
	return exit.Outcome == fumehood.Exited && exit.Code == 0, fmt.Sprintf("exit code %d: %s", exit.Code, bytes.TrimSpace(kept))
}

// update changes the state.
func (c *program) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// now returns what has become of the program, and a channel that is closed when that changes.
func (c *program) now() (box.State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// inService adds a service to the error of its start, if the sandbox has several. A missing user or program is an
// ErrConfig: an ErrNotStarted is the error of a command.
func (sb *sandbox) inService(ctx context.Context, s *service, err error) error {
	err = s.Guests.Explain(ctx, err)
	notStarted := errors.Is(err, fumehood.ErrNotStarted)
	if err == nil || len(sb.services) == 1 && !notStarted {
		return err
	}
	e := fumehood.Error{Class: fumehood.ClassOf(err), Err: err}
	if typed, ok := errors.AsType[*fumehood.Error](err); ok {
		e = *typed
	}
	if notStarted {
		e.Class = fumehood.ErrConfig
	}
	if len(sb.services) > 1 {
		e.Service = s.Info.Name
	}
	return &e
}
