package box

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// Command is a command run by a guest or by the Unit itself. If the command is lost, Command finds out whether code in
// the sandbox caused it.
type Command struct {
	provider.ProcessBackend
	m     *Guests
	guest *guest      // runs it; nil if the Unit does
	user  string      // as given in the command
	ooms  int         // out-of-memory kills before the command
	ends  int         // exits of the service's own program before the command
	count *wire.Swept // counters before the command, if the Unit runs it and they are known

	alone  func() bool  // no other command of this process has run in the service since; nil for a health check
	depart func()       // ends what Guests.attend began
	killed *atomic.Bool // Kill was called
	rest   func() bool  // left, at most once; nil if the Unit runs the command
}

// Begin returns a Command that the Unit is about to start itself. The Unit calls Abandon if that fails.
func (m *Guests) Begin(ctx context.Context) Command {
	c := m.begin(nil)
	c.alone, c.depart = m.attend()
	c.count = m.counters(ctx)
	return c
}

// Abandon ends a Command of Begin that has not started.
func (c Command) Abandon() { c.depart() }

// counters returns the counters of the control group, and describes the limit on processes; nil if no guest can report them.
func (m *Guests) counters(ctx context.Context) *wire.Swept {
	main := m.Main()
	if main == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeathWait)
	defer cancel()
	swept, err := main.Sweep(ctx, nil, wire.Swept{})
	if err != nil {
		return nil
	}
	return &swept
}

// processLimitError returns the error of a process that did not start because the sandbox's limit on processes was reached
// since before. It returns nil if that was not the reason.
func (m *Guests) processLimitError(ctx context.Context, before *wire.Swept) error {
	now := m.counters(ctx)
	if before == nil || now == nil || now.PIDsLimits <= before.PIDsLimits {
		return nil
	}
	return &fumehood.Error{Class: fumehood.ErrLimit, Err: &provider.ProcessLimit{Text: now.ProcessLimit}, Hint: provider.ProcessLimitHint}
}

func (m *Guests) begin(by *guest) Command {
	c := Command{m: m, guest: by, killed: new(atomic.Bool)}
	if by == nil || by.exec != nil || m.cfg.CountsOOMs || !m.cfg.Serves { // otherwise nothing compares them
		now := m.now()
		c.ooms, c.ends = now.OOMs, now.Ends
	}
	return c
}

// Start runs cmd through the guest of its user.
func (m *Guests) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if cmd.Detach && m.cfg.Key != nil {
		return m.detach(ctx, cmd, out)
	}
	return m.run(ctx, cmd, func(u *guest) (*host.Process, error) { return u.Exec(ctx, cmd, live, out) })
}

// run starts cmd by start, through the guest of its user, and counts it.
func (m *Guests) run(ctx context.Context, cmd fumehood.Cmd, start func(*guest) (*host.Process, error)) (provider.ProcessBackend, error) {
	alone, depart := m.attend()
	p, err := m.exec(ctx, cmd, start)
	if err != nil {
		depart()
		return nil, err
	}
	p.alone, p.depart = alone, depart
	return p, nil
}

// Check runs a health check, which does not count as a command.
func (m *Guests) Check(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (provider.ProcessBackend, error) {
	p, err := m.exec(ctx, cmd, func(u *guest) (*host.Process, error) { return u.Check(ctx, cmd, out) })
	if err != nil {
		return nil, err
	}
	return p, nil
}

// exec runs cmd by start, through the guest of its user.
func (m *Guests) exec(ctx context.Context, cmd fumehood.Cmd, start func(*guest) (*host.Process, error)) (*Command, error) {
	var c Command
	reached, err := m.reach(ctx, cmd.User, func(u *guest) error {
		m.cfg.Ran.Store(true)
		c = m.begin(u)
		c.user = cmd.User
		p, err := start(u)
		c.ProcessBackend = p
		return err
	})
	switch {
	case !reached:
		return nil, err
	case err != nil:
		return nil, c.explain(ctx, err)
	}
	c.rest = sync.OnceValue(func() bool { return c.left(ctx) })
	return &c, nil
}

// withCounts returns the exit with the counts that the guest cannot report, and what follows from them.
func (c Command) withCounts(ctx context.Context, exit provider.Exit) provider.Exit {
	if c.guest == nil { // the Unit itself does not report usage
		exit.Usage.OOMKills = max(int64(c.m.now().OOMs-c.ooms), 0)
		if now := c.m.counters(ctx); now != nil && c.count != nil { // they count since the sandbox's start
			if kills := now.OOMKills - c.count.OOMKills; kills > 0 {
				exit.Usage.OOMKills = kills // the Unit may report one twice, while the memory is being freed
			}
			exit.Usage.PIDsLimits = max(now.PIDsLimits-c.count.PIDsLimits, 0)
		}
		exit.Alone = true
	}
	if c.m.cfg.CountsOOMs {
		exit.Usage.OOMKills = int64(max(c.m.now().OOMs-c.ooms, 0))
		if exit.Usage.OOMKills > 0 && exit.Outcome == fumehood.Signaled && exit.Signal == sigKill && !exit.Killed {
			exit = outOfMemory(exit)
		}
	}
	return exit
}

// Wait returns how the command ended.
func (c Command) Wait(ctx context.Context) (provider.Exit, error) {
	exit, err := c.ProcessBackend.Wait(ctx)
	if err == nil {
		exit = c.withCounts(ctx, exit)
	}
	if c.alone != nil {
		exit.Alone = exit.Alone && c.alone()
		c.depart()
	}
	if err != nil || exit.Outcome != fumehood.Lost || exit.CausedInside {
		return exit, err
	}
	if c.m.IsClosed() {
		return exit, nil // we closed the guests
	}
	if inside, oom := c.ofGuest(ctx); oom || inside != "" {
		if c.guest.Lost() { // its workers have ended with it, without killing processes
			exit.Leaked = c.rest() || exit.Leaked
		}
		switch {
		case oom:
			return outOfMemory(exit), nil
		case c.killed.Load() && c.guest.Lost() && !exit.Leaked: // the command took its guest with it, and nothing is left
			exit.Outcome, exit.Code, exit.Signal, exit.Reason = fumehood.Signaled, 128+sigKill, sigKill, ""
			return exit, nil
		}
		exit.CausedInside, exit.Reason = true, inside
		return exit, nil
	}
	cut := c.m.isCut(c.guest)
	if cut && c.m.survives(ctx, c.guest) {
		exit.Reason = CutReason
		return exit, nil
	}
	frozen := c.guest != nil && !c.guest.Lost() // it did not answer, and does not until the service resumes
	now := await(ctx, c.m.cfg.Unit, DeathWait, func(s State) bool { return !s.Lives || s.Ends > c.ends || frozen && s.Paused })
	switch death := c.m.cfg.Unit.Death(ctx); {
	case errors.Is(death.Err, fumehood.ErrBroken) && death.OutOfMemory:
		return outOfMemory(exit), nil
	case errors.Is(death.Err, fumehood.ErrBroken):
		exit.CausedInside, exit.Reason = true, death.Err.Error()
	case now.Ends > c.ends && !c.m.cfg.Serves:
		exit.CausedInside, exit.Reason = true, "the service's own program ended while the command ran, and the Engine starts it again"
	case death.Err != nil:
		exit.Reason = death.Err.Error()
	case cut:
		exit.Reason = CutReason
	}
	return exit, nil
}

// OnGap registers what is called for output that is missing.
func (c Command) OnGap(skip func(s fumehood.Stream, n int64)) {
	if p, ok := c.ProcessBackend.(provider.GapBackend); ok {
		p.OnGap(skip)
	}
}

// left has another guest kill the processes that the commands of the command's dead guest left. It reports whether some
// of them may still run.
func (c Command) left(ctx context.Context) bool {
	if c.guest.relayed { // the guest lives, and kills them itself
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DeathWait)
	defer cancel()
	dead := c.guest.swept
	if main := c.m.Main(); main != nil {
		swept, err := main.Sweep(ctx, &dead.User, dead)
		if err == nil && (swept.User == 0 || swept.User == dead.User) { // it may kill all of them
			return swept.Survivors > 0
		}
	}
	next, err := c.m.of(ctx, c.user) // a new guest also kills them when it starts
	return err != nil || next.swept.Survivors > 0
}

// frozenWithin is how long a kill waits for a paused service, for example during a checkpoint.
const frozenWithin = 4 * time.Second

// sigKill is Linux's number of SIGKILL.
const sigKill = 9

// Kill kills the command. If the service stays paused, Kill gives up waiting; the command is killed when the service
// resumes.
func (c Command) Kill(ctx context.Context) bool {
	c.killed.Store(true)
	if p, ok := c.ProcessBackend.(*host.Process); ok {
		defer time.AfterFunc(frozenWithin, func() {
			if c.m.now().Paused {
				p.GiveUp()
			}
		}).Stop()
	}
	if c.ProcessBackend.Kill(ctx) {
		return true
	}
	if c.guest == nil || c.guest.exec == nil || !c.guest.Lost() {
		return false
	}
	inside, oom := c.ofGuest(ctx)
	return (inside != "" || oom) && !c.rest()
}

// OOMWithin bounds the wait for the report of an out-of-memory kill. On a busy machine the report may arrive after that
// of the exit. The Engine then sends it as an event and never shows it in the container's state.
const OOMWithin = 500 * time.Millisecond

// ofGuest returns what happened in the sandbox to the guest that lost the command. It only covers guests started by an
// exec in a service that still runs. oom reports whether the out-of-memory killer killed the guest. It works even if
// ctx is canceled.
func (c Command) ofGuest(ctx context.Context) (inside string, oom bool) {
	if c.guest == nil || c.guest.exec == nil {
		return "", false
	}
	const killed, stopped = "the guest was killed in the sandbox", "the guest was stopped in the sandbox"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*DeathWait)
	defer cancel()
	code := -1
	if c.guest.Lost() { // otherwise it did not respond
		var err error
		if code, err = c.guest.exec.AwaitEnd(ctx, DeathWait); err != nil {
			return "", false
		}
	}
	struck := func(s State) bool { return s.OOMs > c.ooms }
	switch {
	case code == 0, code == 1: // these codes mean that its connection ended
		return "", false
	case code == wire.WasStopped:
		return stopped, false
	case code > 0 && struck(await(ctx, c.m.cfg.Unit, OOMWithin, struck)):
		return "", true
	case code > 0:
		return killed, false
	}
	if is, err := c.guest.exec.Stopped(ctx); err == nil && is {
		return stopped, false
	}
	return "", false
}

// explain adds to an error of the command's guest what happened to the guest in the sandbox.
func (c Command) explain(ctx context.Context, err error) error {
	err = c.m.explainLost(ctx, err)
	if !errors.Is(err, fumehood.ErrUnavailable) || errors.Is(err, fumehood.ErrBroken) || c.m.IsClosed() {
		return err
	}
	if c.m.cfg.Serves && !c.m.cfg.Ran.Load() {
		return c.ofCut(err) // no code that could have caused it has run in the sandbox
	}
	switch inside, oom := c.ofGuest(ctx); {
	case oom:
		return brokenError(err, "the out-of-memory killer killed the guest")
	case inside != "":
		return brokenError(err, inside)
	}
	return c.ofCut(err)
}

// failStart closes a guest whose start has failed. It adds to the error what the Unit knows and what the guest wrote.
func (c Command) failStart(ctx context.Context, err error) error {
	c.guest.Close()
	return Saying(c.explain(ctx, err), c.guest.exec.Complaint())
}

// brokenError returns err as an ErrBroken with the reason that was found in the sandbox.
func brokenError(err error, why string) error {
	return &fumehood.Error{Class: fumehood.ErrBroken, Err: fmt.Errorf("%w: %s", err, why)}
}

// outOfMemory returns the exit of a lost command, with an out-of-memory kill as the outcome.
func outOfMemory(exit provider.Exit) provider.Exit {
	exit.Outcome, exit.Reason = fumehood.OutOfMemory, ""
	return exit
}
