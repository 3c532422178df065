// Package host is the host's side of the protocol of package wire. It runs commands through a guest, which it does
// not trust.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// Guest is a connection to a guest. Its methods may be called concurrently.
type Guest struct {
	first   *wire.Conn
	conn    atomic.Pointer[wire.Conn] // for requests: first, or the connection made by Move; the guest is lost when it ends
	readers sync.WaitGroup            // of both connections
	over    chan struct{}             // closed when both connections have ended, after a Move

	resident atomic.Bool // the guest outlives this connection
}

// New returns a connection to a guest over rw, and closes rw when the connection ends.
func New(rw io.ReadWriteCloser) *Guest {
	g := &Guest{first: wire.NewConn(rw, wire.Host, nil), over: make(chan struct{})}
	g.conn.Store(g.first)
	g.readers.Go(func() { _ = g.first.Serve() }) // Err returns why it ended
	return g
}

// Ready waits until the guest answers.
func (g *Guest) Ready(ctx context.Context) error {
	if g.first.Ping(ctx.Done()) {
		return nil
	}
	if ctx.Err() != nil {
		return &fumehood.Error{Class: fumehood.ErrCanceled, Err: context.Cause(ctx)}
	}
	return lostError(g.first.Err())
}

// Done returns a channel that is closed when the guest is lost and its connections have ended.
func (g *Guest) Done() <-chan struct{} {
	if g.Moved() {
		return g.over
	}
	return g.first.Done()
}

// Lost reports whether the guest is lost. It returns true before a command is reported as lost with the guest.
func (g *Guest) Lost() bool { return g.conn.Load().Err() != nil }

// partWithin bounds the wait for a resident guest to confirm that it has received everything.
const partWithin = time.Second

// Close ends the connection. The guest then kills everything that it has started. A resident guest kills only what it
// has started for this host, except detached commands. Close first makes sure that a resident guest has received
// everything sent to it, such as input.
func (g *Guest) Close() {
	if g.resident.Load() && !g.Lost() {
		over := make(chan struct{})
		stop := time.AfterFunc(partWithin, func() { close(over) })
		g.first.Ping(over)
		stop.Stop()
	}
	g.giveUp()
	g.readers.Wait()
}

// lostError returns the error of a call that a lost guest cannot answer. It is never io.EOF, which would mean the end of
// content.
func lostError(err error) error {
	if errors.Is(err, io.EOF) || err == nil {
		err = errors.New("stream closed")
	}
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest is lost: %w", err)}
}

// protocolError returns the error of a guest that breaks the protocol.
func protocolError(format string, a ...any) error {
	return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the guest broke the protocol: "+format, a...)}
}

// request opens the stream of a request.
func (g *Guest) request(req wire.Request) (*wire.Stream, error) {
	text, err := req.Encode()
	if err != nil {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	if len(text) > wire.MaxFromHost {
		return nil, &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("request of %d bytes, at most %d are allowed", len(text), wire.MaxFromHost)}
	}
	s, err := g.conn.Load().Open(text)
	if err != nil {
		return nil, unsent{lostError(err)}
	}
	return s, nil
}

// Process is a command that a guest runs.
type Process struct {
	s    *wire.Stream
	live bool
	out  provider.Sink

	delivering atomic.Bool // out is being called

	watching bool                             // the command is detached
	followed atomic.Bool                      // for a detached command: output was requested and may come
	skip     func(s fumehood.Stream, n int64) // may be nil; set before skips is closed
	skips    chan struct{}                    // closed by OnGap and Wait
	skipping sync.Once
	offset   [2][]byte // the received part of an offset, which may come in several pieces
	id       int       // of a detached command, set when it has started

	grace time.Duration
	cpuUS int64 // the limit of processor time in microseconds; 0 for none, or unknown while watching
	stdin bool

	terse    bool        // the start may not be reported before the end; Wait receives
	answer   *time.Timer // of a terse command: gives up a guest that does not answer
	mute     atomic.Bool // answer has fired
	reported bool        // the guest has reported the start

	started chan struct{} // closed when the guest has reported the start
	ended   chan struct{} // closed when exit, err or lost is set
	exit    wire.Exit
	err     error
	lost    error    // why the stream ended before the command's end was reported
	kept    [2]int64 // bytes of output received or skipped

	closing sync.Once
	closed  chan struct{}
}

// startWithin bounds the wait for a guest to report a start. Normally that takes a few milliseconds, and a second on
// an overloaded machine.
const startWithin = 30 * time.Second

func newProcess(cmd fumehood.Cmd, live bool, out provider.Sink) *Process {
	return &Process{
		live: live, out: out, grace: provider.KillAfter(&cmd), stdin: cmd.Stdin != nil || cmd.StdinPipe,
		started: make(chan struct{}), ended: make(chan struct{}), skips: make(chan struct{}), closed: make(chan struct{}),
	}
}

// OnGap sets a function that is called in order with the sink for bytes of a stream that are no longer kept, instead of the
// sink. It must be called once, before Wait.
func (p *Process) OnGap(skip func(s fumehood.Stream, n int64)) {
	p.skip = skip
	p.skipping.Do(func() { close(p.skips) })
}

// request returns the request for cmd.
func (p *Process) request(cmd fumehood.Cmd) wire.Exec {
	request := wire.Exec{
		Dir: []byte(cmd.Dir), Stdin: p.stdin, Live: p.live, Terse: p.terse,
		Caps:    [2]int64{provider.OutputCap(&cmd, fumehood.Stdout), provider.OutputCap(&cmd, fumehood.Stderr)},
		GraceMS: p.grace.Milliseconds(), KillRest: cmd.KillRest, CPUUS: microseconds(cmd.CPUTime),
	}
	p.cpuUS = request.CPUUS
	for _, a := range cmd.Args {
		request.Args = append(request.Args, []byte(a))
	}
	for _, kv := range provider.Environ(&cmd) {
		request.Env = append(request.Env, []byte(kv))
	}
	if cmd.TTY {
		request.Terminal = &wire.Size{Rows: cmd.Rows, Cols: cmd.Cols}
	}
	if l := cmd.Rlimits; l != (fumehood.Rlimits{}) {
		request.Rlimits = &wire.Rlimits{CPU: int64(l.CPU / time.Second), FileSize: l.FileSize, OpenFiles: l.OpenFiles, Processes: l.Processes}
	}
	return request
}

// microseconds rounds a duration up.
func microseconds(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// Exec sends cmd to the guest, at most once, and returns when it runs. Without live it may return earlier, and Wait
// then returns the error of a failed start.
func (g *Guest) Exec(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (*Process, error) {
	p := newProcess(cmd, live, out)
	p.terse = !live && cmd.Stdin == nil // a reader must not be read if the start fails
	request := p.request(cmd)
	if err := g.begin(ctx, p, wire.Request{Exec: &request}); err != nil {
		return nil, err
	}
	return p, nil
}

// Check is Exec with live for a health check.
func (g *Guest) Check(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (*Process, error) {
	p := newProcess(cmd, true, out)
	request := p.request(cmd)
	request.Check = true
	if err := g.begin(ctx, p, wire.Request{Exec: &request}); err != nil {
		return nil, err
	}
	return p, nil
}

// Launch is Exec with live for the service's own program.
func (g *Guest) Launch(ctx context.Context, cmd fumehood.Cmd, out provider.Sink) (*Process, error) {
	p := newProcess(cmd, true, out)
	request := p.request(cmd)
	request.ID = wire.ProgramID
	if err := g.begin(ctx, p, wire.Request{Exec: &request}); err != nil {
		return nil, err
	}
	return p, nil
}

// begin sends a request for p, and waits until the guest reports that the command runs.
func (g *Guest) begin(ctx context.Context, p *Process, r wire.Request) error {
	var err error
	if p.s, err = g.request(r); errors.Is(err, fumehood.ErrLimit) {
		return &fumehood.Error{Class: fumehood.ErrNotStarted, Err: fmt.Errorf("argument list too long: %s", err.Error())}
	}
	if err != nil {
		return err
	}
	if p.terse {
		p.answer = time.AfterFunc(startWithin, func() {
			p.mute.Store(true)
			g.giveUp()
		})
		return nil
	}
	go p.receive()
	answer := time.NewTimer(startWithin)
	defer answer.Stop()
	select {
	case <-p.started:
	case <-p.ended:
		err = p.startError()
	case <-ctx.Done():
		err = ctx.Err()
	case <-answer.C: // the guest may have been stopped from inside, and cannot run further commands either
		err = lostError(fmt.Errorf("no answer within %v; unknown whether the command ran", startWithin))
		g.giveUp()
	}
	if err != nil {
		if r.Exec != nil && r.Exec.Detach {
			p.order(wire.Order{Kill: true}) // otherwise it would outlive the stream
		}
		p.close() // the guest then kills the command, in case it has just started
		<-p.ended
	}
	return err
}

func (p *Process) close() {
	p.closing.Do(func() {
		close(p.closed)
		p.s.Close()
	})
}

// startError returns why a command that has ended was not started; nil if it was started.
func (p *Process) startError() error {
	switch {
	case p.reported:
		return nil
	case p.err != nil:
		return p.err
	}
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest was lost before it reported the start; unknown whether the command ran: %w", p.lost)}
}

// receive processes the guest's messages about the command until its end.
func (p *Process) receive() {
	defer close(p.ended)
	defer p.close()
	for {
		ev, err := p.s.Receive()
		if p.terse {
			p.answer.Stop()
		}
		if err != nil {
			p.lost = err // the guest is gone, or this side closed the stream
			if errors.Is(err, wire.ErrProtocol) {
				p.err = protocolError("%w", err)
			}
			return
		}
		first := !p.reported && p.kept == [2]int64{}
		switch {
		case !p.reported && !p.terse && ev.Type != wire.Message:
			p.err = protocolError("the first reply is neither a start nor a failure")
			return
		case p.reported && p.watching && !p.followed.Load():
			p.err = protocolError("unrequested message about a command")
			return
		}
		switch ev.Type { //nolint:exhaustive // End is no news, and a stream has no other events
		case wire.Data:
			if p.err = p.data(ev); p.err != nil {
				return
			}
		case wire.Message:
			var r wire.Reply
			switch err := wire.Unpack(ev.Payload, &r); {
			case err != nil:
				p.err = protocolError("%w", err)
			case first && r.Exit == nil && r.Failed == nil && r.Started != nil && p.watching == (r.Started.ID > 0):
				p.id, p.reported = r.Started.ID, true
				close(p.started)
				continue
			case first && r.Exit == nil && r.Failed != nil && r.Started == nil:
				p.err = startFailure(r.Failed)
			case r.Exit == nil || r.Started != nil || r.Failed != nil || !p.reported && !p.terse:
				p.err = protocolError("unexpected reply")
			default:
				p.exit = *r.Exit
				p.err = p.checkExit()
			}
			return
		}
	}
}

// data forwards output to the sink.
func (p *Process) data(ev wire.Event) error {
	if !p.live && (ev.Channel == wire.StdoutAt || ev.Channel == wire.StderrAt) {
		return p.at(ev)
	}
	if ev.Channel != wire.Stdout && ev.Channel != wire.Stderr {
		return protocolError("output on channel %d", ev.Channel)
	}
	i := ev.Channel - wire.Stdout
	if len(p.offset[i]) > 0 {
		return protocolError("incomplete offset of %d bytes", len(p.offset[i]))
	}
	p.kept[i] += int64(len(ev.Payload))
	p.delivering.Store(true)
	p.out(fumehood.Stream(ev.Channel), ev.Payload)
	p.delivering.Store(false)
	p.s.Consume(len(ev.Payload))
	return nil
}

// checkExit returns an error for an exit that is not possible.
func (p *Process) checkExit() error {
	e := p.exit
	for i, total := range e.Totals {
		if p.kept[i] != total {
			return protocolError("%d bytes of output received, %d reported", p.kept[i], total)
		}
	}
	switch {
	case e.Lost && e.Code == -1 && e.Signal == 0:
	case e.Signal == 0 && e.Code >= 0 && e.Code <= 255:
	case e.Signal > 0 && e.Signal <= 64 && e.Code == 128+e.Signal:
	default:
		return protocolError("a command ended with code %d and signal %d", e.Code, e.Signal)
	}
	if (e.WallUS != 0 || e.TimedOut) && !p.watching {
		return protocolError("wall time of a command that is not detached")
	}
	if e.CPUUS != 0 && !p.watching && (p.cpuUS == 0 || e.CPUUS <= p.cpuUS) {
		return protocolError("%d µs of processor time exceed a limit of %d", e.CPUUS, p.cpuUS)
	}
	if e.WallUS < 0 || e.Survivors < 0 || e.UserUS < 0 || e.SystemUS < 0 || e.CPUUS < 0 || e.MaxRSS < 0 || e.Peak < 0 || e.OOMKills < 0 || e.PIDsLimits < 0 {
		return protocolError("negative count")
	}
	return nil
}

// Wait waits until the command has ended and its output is delivered, and returns how it ended.
func (p *Process) Wait(context.Context) (provider.Exit, error) {
	p.skipping.Do(func() { close(p.skips) })
	if p.terse {
		p.receive()
	}
	<-p.ended
	if p.err != nil {
		return provider.Exit{}, p.err
	}
	if p.lost != nil {
		reason := "the connection to the sandbox was lost while the command ran"
		switch {
		case p.mute.Load():
			reason = fmt.Sprintf("the sandbox has not answered within %v; unknown whether the command ran", startWithin)
		case p.watching:
			reason = "the connection to the sandbox has ended; a detached command may run on there"
		case !p.reported:
			reason = "the connection to the sandbox was lost before the start was reported"
		}
		return provider.Exit{Outcome: fumehood.Lost, Code: -1, Reason: reason}, nil
	}
	e := p.exit
	exit := provider.Exit{
		Outcome: fumehood.Exited, Code: e.Code, Signal: e.Signal, Totals: &e.Totals, Leaked: e.Survivors > 0, Killed: e.Killed, Alone: e.Alone,
		Duration: time.Duration(e.WallUS) * time.Microsecond,
		Usage: fumehood.Usage{
			User: time.Duration(e.UserUS) * time.Microsecond, System: time.Duration(e.SystemUS) * time.Microsecond,
			MaxRSS: e.MaxRSS, MemoryPeak: e.Peak, OOMKills: e.OOMKills, PIDsLimits: e.PIDsLimits,
		},
	}
	switch {
	case e.CPUUS > 0 && (!e.Lost || !exit.Leaked):
		exit.Outcome, exit.Code = fumehood.CPUTimeExceeded, -1
		exit.Reason = fmt.Sprintf("its processes used %v of processor time", time.Duration(e.CPUUS)*time.Microsecond)
	case e.TimedOut:
		exit.Outcome, exit.Code = fumehood.TimedOut, -1
	case e.Lost && e.Killed && !exit.Leaked: // its supervisor died as it was killed, and nothing is left
		const sigKill = 9
		exit.Outcome, exit.Code, exit.Signal = fumehood.Signaled, 128+sigKill, sigKill
	case e.Lost && exit.Leaked:
		exit.Outcome = fumehood.Lost
		exit.Reason = fmt.Sprintf("its supervisor in the sandbox was killed; at least %d of its processes cannot be seen or killed", e.Survivors)
	case e.Lost:
		exit.Outcome, exit.Reason = fumehood.Lost, "its supervisor in the sandbox was killed, with all its processes"
	case e.Signal == 9 && e.OOMKills > 0 && !e.Killed:
		exit.Outcome = fumehood.OutOfMemory
	case e.Signal > 0:
		exit.Outcome = fumehood.Signaled
	}
	exit.CausedInside = e.Lost && exit.Outcome == fumehood.Lost // the guest itself is alive to report it
	if exit.Outcome != fumehood.Signaled {
		exit.Signal = 0
	}
	return exit, nil
}
