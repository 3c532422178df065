package fumehood

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/ring"
)

// Process is a command that Start handed over. Its end is awaited and its output collected whether or
// not anybody asks. Its methods may be called by many goroutines at once.
type Process struct {
	svc   *Service
	be    ProcessBackend
	stdin bool          // StdinPipe was set
	info  ProcessInfo   // its Ended is that of when it was found
	look  func()        // makes what another process has started be awaited here; nil for what this one has
	out   [3]*ring.Tail // by Stream
	feed  *feed         // nil where there are no events: under Exec, and of a detached command

	record func(*Result, error) // takes the end down; nil for what another process has started

	mu       sync.Mutex
	ended    bool  // the backend has said how it ended
	why      error // errTimeout, or what ended the command from our side; nil while nothing did
	unkilled bool
	killing  sync.WaitGroup // kill, once why is set

	done   chan struct{} // closed when result or err is set
	result *Result
	err    error
	cut    bool // the backend was lost before it told how the command ended; set before done is closed
}

// errTimeout marks that the wall limit passed.
var errTimeout = errors.New("wall limit passed")

// start hands cmd over, to be supervised while it runs.
func (s *Service) start(ctx context.Context, cmd Cmd, f *feed) (*Process, error) {
	p, cmd, err := s.handOver(ctx, cmd, true, f)
	if err != nil {
		return nil, err
	}
	if cmd.Detach {
		ctx = context.WithoutCancel(ctx)
		s.detached.list(p)
	}
	go p.supervise(ctx, cmd)
	return p, nil
}

// handOver hands cmd over, and returns it as it was, for supervise. With live, its output can be listened to
// while it runs: by f too, unless that is nil.
func (s *Service) handOver(ctx context.Context, cmd Cmd, live bool, f *feed) (_ *Process, _ Cmd, err error) {
	const op = "exec"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return nil, cmd, err
	}
	cmd.User = cmp.Or(cmd.User, s.user)
	cmd.ViaEngine = cmd.ViaEngine || s.direct
	if err := cmd.validate(); err != nil {
		return nil, cmd, classify(ctx, err, op, s.info.Name, "")
	}
	if ctx.Err() != nil {
		return nil, cmd, cancelled(ctx, op, s.info.Name)
	}
	cmd.Dir = s.abs(cmd.Dir)
	if cmd.TTY && cmd.Rows == 0 && cmd.Cols == 0 {
		cmd.Rows, cmd.Cols = 24, 80
	}
	p := &Process{
		svc: s, stdin: cmd.StdinPipe, feed: f, done: make(chan struct{}),
		info: ProcessInfo{Args: slices.Clone(cmd.Args), Started: time.Now()},
	}
	if cmd.Detach {
		if p.info.ID, err = s.detached.reserve(); err != nil {
			return nil, cmd, classify(ctx, err, op, s.info.Name, "")
		}
	}
	p.out[Stdout], p.out[Stderr] = ring.NewTail(capOf(cmd.StdoutCap)), ring.NewTail(capOf(cmd.StderrCap))
	p.record = s.sb.recorder.Load().command(s.info.Name, cmd)
	if p.be, err = s.be.Start(ctx, cmd, live, p.sink); err != nil {
		if cmd.Detach {
			s.detached.release()
		}
		err = classify(ctx, err, op, s.info.Name, "")
		p.record(nil, err)
		return nil, cmd, err
	}
	if be, ok := p.be.(DetachedBackend); ok {
		be.Gaps(p.gap)
		cmd.Timeout = 0 // the sandbox keeps it
	}
	return p, cmd, nil
}

// sink takes output from the backend.
func (p *Process) sink(s Stream, b []byte) {
	if len(b) == 0 {
		return
	}
	_, _ = p.out[s].Write(b) // it never fails
	if p.feed != nil {
		p.feed.put(s, b)
	}
}

// gap takes the word that bytes of the output are not to be had.
func (p *Process) gap(s Stream, n int64) { p.out[s].Skip(n) }

// awaited sees to it that the command's end is recorded.
func (p *Process) awaited() {
	if p.look != nil {
		p.look()
	}
}

// supervise owns the command: it feeds its input, watches the clock and ctx, and records the end.
func (p *Process) supervise(ctx context.Context, cmd Cmd) {
	if cmd.Stdin != nil {
		// Not joined: its Read belongs to the caller and may block for ever (see Cmd.Stdin).
		go p.pump(ctx, cmd.Stdin)
	} else if !cmd.StdinPipe && !cmd.TTY {
		_ = p.be.CloseStdin() // the command may have ended already
	}
	if cmd.Timeout > 0 {
		clock := time.AfterFunc(cmd.Timeout-time.Since(p.info.Started), func() { p.kill(ctx, errTimeout) })
		defer clock.Stop()
	}
	defer context.AfterFunc(ctx, func() { p.kill(ctx, cancelled(ctx, "exec", p.svc.info.Name)) })()
	exit, err := p.be.Wait(context.WithoutCancel(ctx))
	p.mu.Lock()
	p.ended = true
	killed := p.why != nil
	p.mu.Unlock()
	p.killing.Wait()
	if cmd.KillRest && err == nil && !killed && exit.Outcome != Lost && !p.be.Kill(context.WithoutCancel(ctx)) { // where the backend has not done it
		exit.Leaked = true
	}
	p.finish(ctx, exit, err)
}

func outputOf(t *ring.Tail) Output {
	kept, total := t.Bytes()
	return Output{Bytes: kept, Total: total}
}

// kill ends the command for the reason why, unless it has ended or is being ended for another.
func (p *Process) kill(ctx context.Context, why error) {
	p.mu.Lock()
	if p.ended || p.why != nil {
		p.mu.Unlock()
		return
	}
	p.why = why
	p.killing.Add(1)
	defer p.killing.Done()
	p.mu.Unlock()
	if p.feed != nil {
		p.feed.release()
	}
	complete := p.be.Kill(context.WithoutCancel(ctx))
	p.mu.Lock()
	p.unkilled = !complete
	p.mu.Unlock()
}

func (p *Process) finish(ctx context.Context, exit Exit, err error) {
	p.mu.Lock()
	why, unkilled := p.why, p.unkilled
	p.mu.Unlock()
	switch {
	case err != nil && (why == nil || errors.Is(err, ErrNotStarted)):
		p.err = classify(ctx, err, "exec", p.svc.info.Name, "")
	case why != nil && !errors.Is(why, errTimeout) && !errors.Is(why, errKilled):
		p.err = why
	default:
		p.cut = exit.Outcome == Lost && exit.Totals == nil
		p.result = &Result{
			Outcome: exit.Outcome, ExitCode: exit.Code, Signal: exit.Signal,
			Stdout: outputOf(p.out[Stdout]), Stderr: outputOf(p.out[Stderr]),
			Reason: exit.Reason, Inside: exit.Inside && (why == nil || errors.Is(why, errKilled)), Usage: exit.Usage, Started: p.info.Started, Duration: time.Since(p.info.Started),
			Leaked: unkilled || exit.Leaked,
		}
		if exit.Duration > 0 {
			p.result.Duration = exit.Duration
		}
		if t := exit.Totals; t != nil {
			p.result.Stdout.Total, p.result.Stderr.Total = t[0], t[1]
		}
		switch {
		case errors.Is(why, errTimeout):
			p.result.Outcome, p.result.ExitCode, p.result.Signal, p.result.Reason = TimedOut, -1, 0, ""
		case errors.Is(why, errKilled) && exit.Outcome == "":
			p.result.Outcome, p.result.ExitCode, p.result.Reason = Lost, -1, "it was to be killed, which this transport cannot do"
		}
	}
	if p.record != nil {
		p.record(p.result, p.err)
	}
	if p.feed != nil {
		p.feed.close()
	}
	close(p.done)
}

// pump passes the caller's input on. A failing reader is the caller's failure and ends the command.
func (p *Process) pump(ctx context.Context, r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := p.be.Write(buf[:n]); werr != nil {
				return // the program has closed its input or ended
			}
		}
		if errors.Is(err, io.EOF) {
			_ = p.be.CloseStdin()
			return
		}
		if err != nil {
			p.kill(ctx, &Error{Op: "exec", Service: p.svc.info.Name, Class: ErrConfig, Err: fmt.Errorf("read the command's stdin: %w", err)})
			return
		}
	}
}

// Wait returns how the command ended, as Exec does. ctx limits the waiting only: when it ends first,
// the command runs on and the error is an ErrCancelled.
func (p *Process) Wait(ctx context.Context) (*Result, error) {
	p.awaited()
	select {
	case <-p.done:
		return p.result, p.err
	default:
	}
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return nil, cancelled(ctx, "wait", p.svc.info.Name)
	}
}

// Events yields what the command writes from now on, and what of before is still held (at most 1 MiB, and
// 16,384 pieces of the two streams by turns, see Event.Skipped); the last event carries the Result. While a
// loop runs, the program is held back rather than output lost. One loop at a time; leaving it early leaves
// the command running. A detached command has no events, only Follow.
func (p *Process) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if p.feed == nil {
			yield(Event{}, &Error{Op: "listen", Service: p.svc.info.Name, Class: ErrConfig, Err: errors.New("a detached command has no events"), Hint: "use Follow"})
			return
		}
		if !p.feed.attach() {
			yield(Event{}, &Error{Op: "listen", Service: p.svc.info.Name, Class: ErrConfig, Err: errors.New("another loop listens already")})
			return
		}
		p.deliver(yield)
	}
}

func (p *Process) deliver(yield func(Event, error) bool) {
	defer p.feed.detach()
	for {
		ev, ok := p.feed.take()
		if !ok {
			break
		}
		if !yield(ev, nil) {
			return
		}
	}
	<-p.done
	if p.err != nil {
		yield(Event{}, p.err)
		return
	}
	yield(Event{Result: p.result}, nil)
}

// Write writes to the command's standard input. It needs Cmd.StdinPipe. Of a command that has ended it is an
// ErrUnavailable.
func (p *Process) Write(b []byte) (int, error) {
	const op = "write stdin"
	if err := p.needPipe(op); err != nil {
		return 0, err
	}
	if p.info.Ended { // before it was joined
		return 0, &Error{Op: op, Service: p.svc.info.Name, Class: ErrUnavailable, Err: errors.New("the command has ended")}
	}
	p.awaited() // so that the end of one that was joined ends a write for which nobody reads
	n, err := p.be.Write(b)
	if err != nil {
		return n, &Error{Op: op, Service: p.svc.info.Name, Class: ErrUnavailable, Err: err}
	}
	return n, nil
}

// CloseStdin ends the command's standard input. It needs Cmd.StdinPipe.
func (p *Process) CloseStdin() error {
	if err := p.needPipe("close stdin"); err != nil {
		return err
	}
	if p.info.Ended {
		return nil
	}
	if err := p.be.CloseStdin(); err != nil {
		return &Error{Op: "close stdin", Service: p.svc.info.Name, Class: ErrUnavailable, Err: err}
	}
	return nil
}

func (p *Process) needPipe(op string) error {
	if p.stdin {
		return nil
	}
	return &Error{Op: op, Service: p.svc.info.Name, Class: ErrConfig, Err: errors.New("the command was started without StdinPipe")}
}

// Signal sends a signal, by its Linux number, or fails with ErrUnsupported. Signalling a command that
// has ended does nothing.
func (p *Process) Signal(ctx context.Context, sig int) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	return classify(ctx, p.be.Signal(ctx, sig), "signal", p.svc.info.Name, "")
}

// Resize sets the terminal's size in characters.
func (p *Process) Resize(ctx context.Context, rows, cols uint16) error {
	return classify(ctx, p.be.Resize(ctx, rows, cols), "resize", p.svc.info.Name, "")
}

var errKilled = errors.New("killed by the caller")

// outOfReach reports whether the command may run on in its sandbox, and nothing said to this process gets there.
func (p *Process) outOfReach() bool {
	select {
	case <-p.done:
	default:
		return false
	}
	_, kept := p.be.(DetachedBackend)
	return kept && p.cut
}

// Kill ends the command with all its descendants and waits for that. The Result then says how the
// program ended, which after a kill is Signaled, or Lost with Leaked where the transport cannot end it.
// Of a detached command in a kept sandbox that is Lost because the connection broke it is an ErrUnavailable:
// it may run on, and is reached again by a RefreshProcesses.
func (p *Process) Kill(ctx context.Context) error {
	p.awaited()
	if p.outOfReach() {
		return &Error{
			Op: "kill", Service: p.svc.info.Name, Class: ErrUnavailable, Err: errors.New("the connection to the command was lost, which may run on"),
			Hint: "look its service's detached commands up again, see Service.RefreshProcesses",
		}
	}
	p.kill(ctx, errKilled)
	_, err := p.Wait(ctx)
	if errors.Is(err, ErrCancelled) && ctx.Err() == nil {
		return nil // the command's own context had ended before
	}
	return err
}
