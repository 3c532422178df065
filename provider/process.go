package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/guest/ring"
)

// process is a fumehood.Process.
type process struct {
	svc   *service
	be    ProcessBackend
	stdin bool                 // StdinPipe was set
	clock *clock               // of the timeout; nil without one
	info  fumehood.ProcessInfo // Ended as of when it was found
	look  func()               // starts supervising a command of another process; nil for this process's own
	out   [3]*ring.Tail        // by fumehood.Stream
	to    [3]io.Writer         // also by Stream: Cmd.Stdout and Cmd.Stderr, nil after a failure

	closedStdin atomic.Bool // by CloseStdin

	timeout time.Duration // of the command; 0 for none
	cpu     time.Duration // its Rlimits.CPU; 0 for none

	feed *feed // nil if there are no events: in Exec, and for detached commands

	record func(*fumehood.Result, error) // records the end; nil for a command of another process

	mu       sync.Mutex
	ended    bool  // the backend has reported its end
	why      error // errTimeout, or our reason for killing the command; nil if not killed
	unkilled bool
	sigkill  bool           // the caller has sent SIGKILL
	killing  sync.WaitGroup // kill, once why is set
	refusal  error          // the first error of a writer

	refused chan struct{} // closed when refusal is set; nil if there are no writers

	done   chan struct{} // closed when result or err is set
	result *fumehood.Result
	err    error
	cut    bool // the backend was lost before it reported the command's end; set before done is closed
}

// errTimeout marks that the command's timeout expired.
var errTimeout = errors.New("wall limit passed")

// start starts cmd and supervises it in the background.
func (s *service) start(ctx context.Context, cmd fumehood.Cmd, f *feed) (*process, error) {
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

// handOver starts cmd, and returns the completed command for supervise. With live, its output can be received while
// it runs, also by f, which may be nil.
func (s *service) handOver(ctx context.Context, cmd fumehood.Cmd, live bool, f *feed) (_ *process, _ fumehood.Cmd, err error) {
	const op = "exec"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return nil, cmd, err
	}
	cmd.User = cmp.Or(cmd.User, s.user)
	cmd.ViaEngine = cmd.ViaEngine || s.direct
	if err := cmd.Validate(); err != nil {
		return nil, cmd, classify(ctx, err, op, s.info.Name, "")
	}
	if err := files.CheckIDs(cmd.User); err != nil {
		return nil, cmd, &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrUserNotFound, Err: err}
	}
	if ctx.Err() != nil {
		return nil, cmd, canceledError(ctx, op, s.info.Name)
	}
	cmd.Dir = s.abs(cmd.Dir)
	if cmd.TTY && cmd.Rows == 0 && cmd.Cols == 0 {
		cmd.Rows, cmd.Cols = 24, 80
	}
	p := &process{
		svc: s, stdin: cmd.StdinPipe, feed: f, done: make(chan struct{}), to: [3]io.Writer{fumehood.Stdout: cmd.Stdout, fumehood.Stderr: cmd.Stderr}, timeout: cmd.Timeout, cpu: cmd.Rlimits.CPU,
		info: fumehood.ProcessInfo{Args: slices.Clone(cmd.Args), Started: time.Now()},
	}
	if cmd.Stdout != nil || cmd.Stderr != nil {
		p.refused = make(chan struct{})
	}
	if cmd.Detach {
		if p.info.ID, err = s.detached.reserve(); err != nil {
			return nil, cmd, classify(ctx, err, op, s.info.Name, "")
		}
	}
	p.out[fumehood.Stdout], p.out[fumehood.Stderr] = ring.NewTail(OutputCap(&cmd, fumehood.Stdout)), ring.NewTail(OutputCap(&cmd, fumehood.Stderr))
	p.record = s.sb.recorder.Load().command(s.info.Name, cmd)
	if p.be, err = s.be.Start(ctx, cmd, live, p.sink); err != nil {
		if cmd.Detach {
			s.detached.release()
		}
		err = classify(ctx, err, op, s.info.Name, "")
		p.record(nil, err)
		return nil, cmd, err
	}
	if be, ok := p.be.(GapBackend); ok {
		be.OnGap(p.gap)
	}
	_, kept := p.be.(DetachedBackend)
	if _, timed := p.be.(TimedBackend); timed || kept {
		cmd.Timeout = 0 // the sandbox enforces it
	}
	if cmd.Timeout > 0 {
		p.clock = startClock(cmd.Timeout-time.Since(p.info.Started), func() { p.kill(ctx, errTimeout) })
	}
	return p, cmd, nil
}

// sink receives output from the backend, possibly before Start returns.
func (p *process) sink(s fumehood.Stream, b []byte) {
	if len(b) == 0 {
		return
	}
	_, _ = p.out[s].Write(b) // it never fails
	if p.feed != nil {
		p.feed.put(s, b)
	}
	if w := p.to[s]; w != nil {
		n, err := w.Write(b)
		if err == nil && n < len(b) {
			err = io.ErrShortWrite
		}
		if err != nil {
			p.to = [3]io.Writer{}
			p.refuse(&fumehood.Error{Op: "exec", Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("write the command's %v: %w", s, err)})
		}
	}
}

// refuse records that a writer failed, which kills the command.
func (p *process) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal == nil {
		p.refusal = err
		close(p.refused)
	}
}

// gap records that bytes of the output are missing.
func (p *process) gap(s fumehood.Stream, n int64) { p.out[s].Skip(n) }

// ensureRecorded ensures that the command's end will be recorded.
func (p *process) ensureRecorded() {
	if p.look != nil {
		p.look()
	}
}

// supervise owns the command: it passes on input, enforces the timeout, watches ctx, and records the end.
func (p *process) supervise(ctx context.Context, cmd fumehood.Cmd) {
	if cmd.Stdin != nil {
		// Not joined: its Read belongs to the caller and may block indefinitely (see Cmd.Stdin).
		go p.pump(ctx, cmd.Stdin)
	} else if !cmd.StdinPipe && !cmd.TTY {
		_ = p.be.CloseStdin() // the command may have ended already
	}
	if p.clock != nil {
		defer p.clock.stop()
	}
	defer context.AfterFunc(ctx, func() { p.kill(ctx, canceledError(ctx, "exec", p.svc.info.Name)) })()
	if p.refused != nil {
		go func() {
			select {
			case <-p.refused:
				p.kill(ctx, p.refusal)
			case <-p.done:
			}
		}()
	}
	exit, err := p.be.Wait(context.WithoutCancel(ctx))
	p.mu.Lock()
	p.ended = true
	killed := p.why != nil
	p.why = cmp.Or(p.why, p.refusal) // if a writer failed as the command ended
	p.mu.Unlock()
	p.killing.Wait()
	// Kill what the program left behind, if the backend has not done it.
	if cmd.KillRest && err == nil && !killed && exit.Outcome != fumehood.Lost && !p.be.Kill(context.WithoutCancel(ctx)) {
		exit.Leaked = true
	}
	p.finish(ctx, exit, err)
}

func outputOf(t *ring.Tail) fumehood.Output {
	kept, total := t.Bytes()
	return fumehood.Output{Bytes: kept, Total: total}
}

// kill kills the command for the reason why, unless it has ended or is already being killed.
func (p *process) kill(ctx context.Context, why error) {
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

func (p *process) finish(ctx context.Context, exit Exit, err error) {
	p.mu.Lock()
	why, unkilled := p.why, p.unkilled
	killed := exit.Killed || p.sigkill || errors.Is(why, errKilled)
	p.mu.Unlock()
	switch {
	case err != nil && (why == nil || errors.Is(err, fumehood.ErrNotStarted)):
		p.err = classify(ctx, err, "exec", p.svc.info.Name, "")
	case why != nil && !errors.Is(why, errTimeout) && !errors.Is(why, errKilled):
		p.err = why
	default:
		p.cut = exit.Outcome == fumehood.Lost && exit.Totals == nil
		r := judge(ending{Exit: exit, err: err, why: why, killed: killed, sandbox: p.svc.sb.causeOfEnd(), timeout: p.timeout, cpu: p.cpu})
		r.Started, r.Duration, r.Leaked = p.info.Started, time.Since(p.info.Started), unkilled || exit.Leaked
		if exit.Duration > 0 {
			r.Duration = exit.Duration
		}
		if errors.Is(why, errTimeout) { // by the clock here, which has begun before the sandbox's
			r.Duration = max(r.Duration, p.timeout)
		}
		r.Stdout, r.Stderr = outputOf(p.out[fumehood.Stdout]), outputOf(p.out[fumehood.Stderr])
		if total := exit.Totals; total != nil {
			r.Stdout.Total, r.Stderr.Total = total[0], total[1]
		}
		p.result = r
	}
	if p.record != nil {
		p.record(p.result, p.err)
	}
	if p.feed != nil {
		p.feed.close()
	}
	close(p.done)
}

// pump passes the caller's input on. An error of the reader is the caller's and kills the command.
func (p *process) pump(ctx context.Context, r io.Reader) {
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
			p.kill(ctx, &fumehood.Error{Op: "exec", Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("read the command's stdin: %w", err)})
			return
		}
	}
}

// isOver reports whether the command's end is recorded.
func (p *process) isOver() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) Wait(ctx context.Context) (*fumehood.Result, error) {
	p.ensureRecorded()
	if p.isOver() {
		return p.result, p.err
	}
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return nil, canceledError(ctx, "wait", p.svc.info.Name)
	}
}

func (p *process) Events() iter.Seq2[fumehood.Event, error] {
	return func(yield func(fumehood.Event, error) bool) {
		if p.feed == nil {
			yield(fumehood.Event{}, &fumehood.Error{Op: "listen", Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: errors.New("a detached command has no events"), Hint: "use Follow"})
			return
		}
		if !p.feed.attach() {
			yield(fumehood.Event{}, &fumehood.Error{Op: "listen", Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: errors.New("another loop is already receiving the events")})
			return
		}
		p.deliver(yield)
	}
}

func (p *process) deliver(yield func(fumehood.Event, error) bool) {
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
		yield(fumehood.Event{}, p.err)
		return
	}
	yield(fumehood.Event{Result: p.result}, nil)
}

func (p *process) Write(b []byte) (int, error) {
	const op = "write stdin"
	if err := p.needPipe(op); err != nil {
		return 0, err
	}
	if p.info.Ended { // ended before it was joined
		return 0, &fumehood.Error{Op: op, Service: p.svc.info.Name, Class: fumehood.ErrUnavailable, Err: errors.New("the command has ended")}
	}
	if p.closedStdin.Load() {
		return 0, &fumehood.Error{Op: op, Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: errors.New("standard input has been closed")}
	}
	p.ensureRecorded() // the end of a joined command must end a write that nothing reads
	n, err := p.be.Write(b)
	if err != nil {
		return n, &fumehood.Error{Op: op, Service: p.svc.info.Name, Class: fumehood.ErrUnavailable, Err: err}
	}
	return n, nil
}

func (p *process) CloseStdin() error {
	if err := p.needPipe("close stdin"); err != nil {
		return err
	}
	if p.info.Ended {
		return nil
	}
	p.closedStdin.Store(true)
	if err := p.be.CloseStdin(); err != nil {
		return &fumehood.Error{Op: "close stdin", Service: p.svc.info.Name, Class: fumehood.ErrUnavailable, Err: err}
	}
	return nil
}

func (p *process) needPipe(op string) error {
	if p.stdin {
		return nil
	}
	return &fumehood.Error{Op: op, Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: errors.New("the command was started without an open standard input"), Hint: "leave it open at the start (-i)"}
}

func (p *process) Signal(ctx context.Context, sig int) error {
	if p.isOver() {
		return nil
	}
	if sig == sigKill { // before the command can end of it
		p.mu.Lock()
		p.sigkill = true
		p.mu.Unlock()
	}
	return classify(ctx, p.be.Signal(ctx, sig), "signal", p.svc.info.Name, "")
}

func (p *process) Resize(ctx context.Context, rows, cols uint16) error {
	return classify(ctx, p.be.Resize(ctx, rows, cols), "resize", p.svc.info.Name, "")
}

var errKilled = errors.New("killed by the caller")

// Linux's numbers of the signals of a kill.
const sigKill, sigTerm = 9, 15

// outOfReach reports whether the command may still run in its sandbox but cannot be reached from this process.
func (p *process) outOfReach() bool {
	_, kept := p.be.(DetachedBackend)
	return kept && p.isOver() && p.cut
}

func (p *process) Kill(ctx context.Context) error {
	p.ensureRecorded()
	if p.outOfReach() {
		return &fumehood.Error{
			Op: "kill", Service: p.svc.info.Name, Class: fumehood.ErrUnavailable, Err: errors.New("the connection to the command was lost: it may still run"),
			Hint: "refresh the list of detached commands to find it again",
		}
	}
	p.kill(ctx, errKilled)
	_, err := p.Wait(ctx)
	if errors.Is(err, fumehood.ErrCanceled) && ctx.Err() == nil {
		return nil // the command's own context ended first
	}
	return err
}
