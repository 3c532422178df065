package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

const (
	// maxFailureText limits how much of the Engine's message about a failed start is kept, in bytes.
	maxFailureText = 64 << 10
	// askAgain is the interval for checking whether a command has ended without an event.
	askAgain = 30 * time.Second
	// evidenceWait limits the wait for an event about something that has just happened.
	evidenceWait = 200 * time.Millisecond
)

// Exec is one `docker exec`: a command that runs in a container.
type Exec struct {
	c         *Client
	w         *Watch
	id        string
	container string
	tty       bool
	stdin     bool
	typed     atomic.Uint32 // the last byte of input
	conn      client.HijackedResponse
	out       provider.Sink
	oomBefore int

	started chan struct{} // closed when it is known whether the process runs
	failure error         // set before started is closed; nil if the process runs

	ended   chan struct{} // closed at the end of the stream
	readErr error         // set before ended is closed; nil if the stream ended as it should

	closing sync.Once
	closed  chan struct{}      // closed when we abandon the stream
	end     context.CancelFunc // ends the connection's context
}

// Exec starts cmd in a container and returns when it runs or has already ended. It asks the Engine at most once to
// start it.
func (c *Client) Exec(ctx context.Context, w *Watch, container string, cmd fumehood.Cmd, out provider.Sink) (*Exec, error) {
	return c.exec(ctx, w, container, cmd, false, out)
}

// exec is like Exec; a privileged command has all capabilities.
func (c *Client) exec(ctx context.Context, w *Watch, container string, cmd fumehood.Cmd, privileged bool, out provider.Sink) (*Exec, error) {
	e := &Exec{
		c: c, w: w, container: container, tty: cmd.TTY, out: out,
		stdin: cmd.Stdin != nil || cmd.StdinPipe, oomBefore: w.State(container).OOMs,
		started: make(chan struct{}), ended: make(chan struct{}), closed: make(chan struct{}),
	}
	if err := deliverable(cmd); err != nil {
		return nil, err
	}
	var size client.ConsoleSize // ignored by Engines before 23.0
	if cmd.TTY {
		size = client.ConsoleSize{Height: uint(cmd.Rows), Width: uint(cmd.Cols)}
	}
	created, err := c.api.ExecCreate(ctx, container, client.ExecCreateOptions{
		User: cmd.User, Privileged: privileged, TTY: cmd.TTY, ConsoleSize: size, AttachStdin: e.stdin, AttachStdout: true, AttachStderr: true,
		Env: provider.Environ(&cmd), WorkingDir: cmd.Dir, Cmd: cmd.Args,
	})
	if err != nil {
		if f := startFailure(err.Error()); errors.Is(f, fumehood.ErrUserNotFound) {
			return nil, f
		}
		return nil, c.explainGone(ctx, container, err, "create exec")
	}
	e.id = created.ID
	// The connection ends with its context, so that context must depend on ctx only until the command runs.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	e.end = end
	starting := context.AfterFunc(ctx, end)
	defer starting()
	attached, err := c.api.ExecAttach(life, e.id, client.ExecAttachOptions{TTY: cmd.TTY, ConsoleSize: size})
	if err != nil {
		end()
		if isUnclear(err) {
			err = fmt.Errorf("%w; whether it ran is not known", err)
		}
		return nil, c.explainGone(ctx, container, err, "start exec")
	}
	e.conn = attached.HijackedResponse
	// Inspecting a command that was handed over must outlive ctx.
	go e.read(context.WithoutCancel(ctx))
	if err := e.awaitStart(ctx, cmd); err != nil {
		e.drop()
		<-e.ended
		return nil, c.explainNotFound(ctx, container, cmd, err)
	}
	return e, nil
}

// maxString is the longest argument or environment string that Linux accepts, including its NUL (MAX_ARG_STRLEN, 32
// pages of 4 KiB). runc notices a longer one so late that its error arrives as output of the program.
const maxString = 128 << 10

// maxPath is the longest path that Linux accepts, including its NUL (PATH_MAX). An exec with a longer path may hang
// forever: Engine 20.10 with runc 1.1 does for one of 100,000 bytes.
const maxPath = 4096

// deliverable rejects a command that the Engine would change or cut.
func deliverable(cmd fumehood.Cmd) error {
	if cmd.Rlimits != (fumehood.Rlimits{}) || cmd.CPUTime != 0 {
		return &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("the Engine's exec has no limits for one command"),
			Hint: "run it through the guest, limit its time, or limit the whole sandbox",
		}
	}
	for name, s := range map[string]string{"program's name": cmd.Args[0], "directory": cmd.Dir} {
		if len(s)+1 > maxPath {
			return &fumehood.Error{
				Class: fumehood.ErrNotStarted, Err: fmt.Errorf("the %s has %d bytes, Linux accepts at most %d", name, len(s), maxPath-1),
			}
		}
	}
	for _, s := range slices.Concat(cmd.Args, provider.Environ(&cmd), []string{cmd.Dir, cmd.User}) {
		if !utf8.ValidString(s) {
			return &fumehood.Error{
				Class: fumehood.ErrUnsupported, Err: errors.New("the engine transport uses JSON and cannot pass bytes that are not UTF-8"),
				Hint: "pass them by standard input or a file",
			}
		}
		if len(s)+1 > maxString {
			return &fumehood.Error{
				Class: fumehood.ErrNotStarted,
				Err:   fmt.Errorf("argument list too long: an argument or variable has %d bytes, Linux accepts at most %d", len(s), maxString-1),
			}
		}
	}
	return nil
}

// execWithin limits the wait for the Engine's report that an exec's process has started.
const execWithin = time.Minute

func (e *Exec) awaitStart(ctx context.Context, cmd fumehood.Cmd) error {
	within := e.c.speedup.Of(execWithin)
	select {
	case <-time.After(within):
		return &fumehood.Error{
			Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the Engine has not reported within %v that the program started; whether it ran is not known", within),
		}
	case <-e.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.failure != nil || !cmd.TTY {
		return e.failure
	}
	// Engines before 23.0 cannot set the size at creation.
	return e.Resize(ctx, cmd.Rows, cmd.Cols)
}

// explainGone explains the error of a call on a container. If the container does not run any more, it returns that as the
// reason. A created container has not run yet, which is no reason.
func (c *Client) explainGone(ctx context.Context, container string, err error, op string) error {
	if ctx.Err() != nil {
		return c.translate(ctx.Err(), op)
	}
	state, serr := c.Inspect(ctx, container)
	if serr != nil || state.Running || state.Status == created {
		return c.translate(err, op)
	}
	return state.Unavailable()
}

// read copies the stream to the sink after the process has started.
func (e *Exec) read(ctx context.Context) {
	defer close(e.ended)
	stream := bufio.NewReader(e.conn.Reader)
	// Closed when bytes arrive or the stream ends; copy meets a read error again.
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		_, _ = stream.Peek(1)
	}()
	runs, err := e.begun(ctx, spoken)
	if err == nil && !runs {
		err = startFailure(e.text(stream))
	}
	e.failure = err
	close(e.started)
	<-spoken
	if err == nil {
		e.readErr = e.copy(stream, e.out)
	}
}

// begun inspects the exec until it is known whether the process has started. Only that shows the start of a process
// that writes nothing. If the process has not started, the stream contains the Engine's reason, which must not be
// taken for output.
func (e *Exec) begun(ctx context.Context, spoken <-chan struct{}) (bool, error) {
	heard := false
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		// A process may write before the Engine has recorded its id. But the Engine records that nothing runs before
		// it writes about a failed start.
		info, err := e.inspect(ctx)
		if err != nil || info.PID != 0 || heard && !info.Running {
			return info.PID != 0, err
		}
		select {
		case <-spoken:
			spoken, heard, pause = nil, true, 5*time.Millisecond // the next answer should be final
		case <-e.closed:
			return false, &fumehood.Error{Class: fumehood.ErrCanceled, Err: errors.New("canceled before it started")}
		case <-time.After(pause):
		}
	}
}

func (e *Exec) copy(stream io.Reader, out provider.Sink) error {
	stdout := writer(func(p []byte) { out(fumehood.Stdout, p) })
	if e.tty {
		_, err := io.Copy(stdout, stream)
		return err
	}
	return demux(stdout, writer(func(p []byte) { out(fumehood.Stderr, p) }), stream)
}

// text returns what the Engine wrote in place of output.
func (e *Exec) text(stream io.Reader) string {
	var b []byte
	_ = e.copy(stream, func(_ fumehood.Stream, p []byte) { // on an error the text is shorter
		b = append(b, p[:min(len(p), maxFailureText-len(b))]...)
	})
	return string(b)
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func (e *Exec) inspect(ctx context.Context) (client.ExecInspectResult, error) {
	info, err := e.c.api.ExecInspect(ctx, e.id, client.ExecInspectOptions{})
	if err != nil {
		return info, e.c.explainGone(ctx, e.container, err, "inspect exec")
	}
	return info, nil
}

// Wait returns the result of the command, once it has ended and its output is delivered. The Engine reports only an
// exit code, so for a program killed by a signal the outcome is Exited with code 128+n. After Kill it returns at
// once, with an empty outcome: unknown.
func (e *Exec) Wait(ctx context.Context) (provider.Exit, error) {
	<-e.ended
	defer e.drop()
	var died <-chan struct{}
	for {
		info, err := e.inspect(ctx)
		select {
		case <-e.closed:
			return provider.Exit{Code: -1}, nil
		default:
		}
		switch {
		case IsGone(err):
			return lost, nil
		case err != nil:
			return provider.Exit{}, err
		case !info.Running && e.readErr != nil:
			return provider.Exit{}, e.c.translate(e.readErr, "read the output of exec")
		case !info.Running:
			return e.judge(ctx, info.ExitCode)
		}
		// The command still runs: it has closed its outputs, or the connection broke.
		if died == nil {
			died = e.w.ExecDied(e.id)
			defer e.w.Forget(e.id)
			continue // it may have ended before ExecDied
		}
		select {
		case <-died:
		case <-e.closed:
		case <-time.After(e.c.speedup.Of(askAgain)): // in case the event was missed
		}
	}
}

// lost is the result of a command whose container died.
var lost = provider.Exit{Outcome: fumehood.Lost, Code: -1, Reason: "its container ended while it ran"}

// judge finds the reason of exit code 137: an out-of-memory kill, the death of the container, or the program itself.
// It uses what the Engine reports about the container.
func (e *Exec) judge(ctx context.Context, code int) (provider.Exit, error) {
	exit := provider.Exit{Outcome: fumehood.Exited, Code: code}
	if code != 137 {
		return exit, nil
	}
	seen := e.w.Await(ctx, e.container, evidenceWait, func(s box.State) bool { return s.OOMs > e.oomBefore || s.Died })
	if seen.Died {
		return lost, nil
	}
	if seen.OOMs > e.oomBefore {
		exit.Outcome = fumehood.OutOfMemory
		return exit, nil
	}
	// The events may be late, and so may the Engine's description.
	lives, err := e.c.lives(ctx, e.container)
	if IsGone(err) || err == nil && !lives {
		return lost, nil
	}
	return exit, err
}

// attachFailed is the exit code that the Engine records for a command, running or not, when it cannot send output because
// the connection was cut. A program may also exit with it.
const attachFailed = 126

// AwaitEnd waits until a command with a lost connection has ended, and returns its exit code. If the command still runs
// after within, or if the cut hides its exit code, the code is -1. The error is set if the command's state is unknown or
// the container does not run any more.
func (e *Exec) AwaitEnd(ctx context.Context, within time.Duration) (int, error) {
	late := time.After(within)
	died := e.w.ExecDied(e.id)
	defer e.w.Forget(e.id)
	for {
		info, err := e.inspect(ctx)
		if err != nil {
			return 0, err
		}
		if !info.Running {
			lives, err := e.c.lives(ctx, e.container)
			if err == nil && !lives {
				err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New(lost.Reason)}
			}
			if info.ExitCode == attachFailed {
				return -1, err
			}
			return info.ExitCode, err
		}
		select {
		case <-died:
		case <-time.After(time.Second): // in case the event was missed
		case <-late:
			return -1, nil
		}
	}
}

// Stopped reports whether the command runs but was stopped by something in the container, as by SIGSTOP.
func (e *Exec) Stopped(ctx context.Context) (bool, error) {
	info, err := e.inspect(ctx)
	if err != nil || !info.Running {
		return false, err
	}
	state, err := e.c.process(ctx, e.container, info.PID)
	return strings.HasPrefix(state, "T"), err
}

// Write writes to the command's standard input.
func (e *Exec) Write(p []byte) (int, error) {
	n, err := e.conn.Conn.Write(p)
	if n > 0 {
		e.typed.Store(uint32(p[n-1]))
	}
	return n, err
}

// CloseStdin closes the command's standard input. For a terminal it sends the end-of-input characters, because the
// Engine does nothing to a terminal then.
func (e *Exec) CloseStdin() error {
	if !e.stdin {
		return nil
	}
	if e.tty {
		_, err := io.WriteString(e.conn.Conn, wire.EndOfInput(byte(e.typed.Load()))) //nolint:gosec // it was a byte
		return err
	}
	return e.conn.CloseWrite()
}

// Signal is not supported: the Engine's API has no call for it.
func (e *Exec) Signal(context.Context, int) error {
	return &fumehood.Error{
		Class: fumehood.ErrUnsupported, Err: errors.New("the engine transport cannot signal a command"),
		Hint: "close the sandbox to kill it",
	}
}

// Kill abandons the command, and reports false: the Engine's API has no call that kills an exec. Its processes run
// until the container is removed.
func (e *Exec) Kill(context.Context) bool {
	e.drop()
	return false
}

func (e *Exec) drop() {
	e.closing.Do(func() {
		close(e.closed)
		e.conn.Close()
		e.end()
	})
}

// Resize sets the size of the terminal.
func (e *Exec) Resize(ctx context.Context, rows, cols uint16) error {
	if !e.tty {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("the command has no terminal")}
	}
	_, err := e.c.api.ExecResize(ctx, e.id, client.ExecResizeOptions{Height: uint(rows), Width: uint(cols)})
	if err == nil || strings.Contains(err.Error(), "cannot resize a stopped container") { // it may still be listed as running
		return nil
	}
	if info, ierr := e.inspect(ctx); ierr != nil || !info.Running {
		return ierr // the command has ended: nothing to resize
	}
	return e.c.translate(err, "resize terminal")
}
