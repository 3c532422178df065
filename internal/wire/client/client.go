// Package client is the host's side of the protocol of package wire: it runs commands through a guest,
// which it does not trust.
package client

import (
	"context"
	"encoding/json"
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

// Guest is a connection to a guest. Its methods may be called by many goroutines at once.
type Guest struct {
	first   *wire.Conn                // its end is the guest's
	conn    atomic.Pointer[wire.Conn] // where requests go: first, or the one that Move made
	readers sync.WaitGroup            // of both

	resident atomic.Bool // it outlives this connection
}

// New speaks to a guest over rw, which it closes at its end.
func New(rw io.ReadWriteCloser) *Guest {
	g := &Guest{first: wire.NewConn(rw, wire.Host, nil)}
	g.use(g.first)
	return g
}

// use makes requests go to a connection.
func (g *Guest) use(c *wire.Conn) {
	g.conn.Store(c)
	g.readers.Go(func() { _ = c.Serve() }) // why it ended is asked for by Err
}

// Ready waits until the guest answers.
func (g *Guest) Ready(ctx context.Context) error {
	if g.first.Ping(ctx.Done()) {
		return nil
	}
	if ctx.Err() != nil {
		return &fumehood.Error{Class: fumehood.ErrCancelled, Err: context.Cause(ctx)}
	}
	return lost(g.first.Err())
}

// Done is closed when the connection has ended: the guest is lost.
func (g *Guest) Done() <-chan struct{} { return g.first.Done() }

// Lost reports whether the guest is lost. It is known as soon as a command is reported as lost for it.
func (g *Guest) Lost() bool { return g.first.Err() != nil || g.conn.Load().Err() != nil }

// partWithin bounds the wait for a resident guest's word that it has got all.
const partWithin = time.Second

// Close ends the connection. The guest then kills what it has started; a resident one what it has started for
// this host, but for detached commands. What those were told is made sure to have arrived: input, say.
func (g *Guest) Close() {
	if g.resident.Load() && !g.Lost() {
		over := make(chan struct{})
		stop := time.AfterFunc(partWithin, func() { close(over) })
		g.first.Ping(over)
		stop.Stop()
	}
	g.first.Close()
	g.conn.Load().Close()
	g.readers.Wait()
}

// lost makes the error of a call that the guest cannot answer any more. It is no io.EOF, which would be the end of content.
func lost(err error) error {
	if errors.Is(err, io.EOF) || err == nil {
		err = errors.New("its stream has ended")
	}
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest is lost: %w", err)}
}

// broken makes the error of a guest that breaks the protocol.
func broken(format string, a ...any) error {
	return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the guest broke the protocol: "+format, a...)}
}

// Sweep has the guest kill what the commands of another guest left that has died: those of the user with
// that id, or, where user is nil, those of this guest's own user. The dead one began at since, as its own answer to a
// Sweep told; 0 where none has died.
func (g *Guest) Sweep(ctx context.Context, user *int, since uint64) (wire.Swept, error) {
	var swept wire.Swept
	if err := g.ask(ctx, wire.Request{Sweep: &wire.Sweep{User: user, Since: since}}, &swept); err != nil {
		return wire.Swept{}, err
	}
	if swept.User < 0 || swept.Survivors < 0 || swept.Began == 0 {
		return wire.Swept{}, broken("what should tell of a sweep does not")
	}
	return swept, nil
}

// request opens the stream of a request.
func (g *Guest) request(req wire.Request) (*wire.Stream, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	if len(text) > wire.MaxFromHost {
		return nil, &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("%d bytes on the wire, at most %d are allowed", len(text), wire.MaxFromHost)}
	}
	s, err := g.conn.Load().Open(text)
	if err != nil {
		return nil, lost(err)
	}
	return s, nil
}

// Process is a command that a guest runs.
type Process struct {
	s    *wire.Stream
	live bool
	caps [2]int64
	out  provider.Sink

	delivering atomic.Bool // out runs

	watching bool        // it is a detached one: what is sent is all that the guest has, with gaps
	followed atomic.Bool // of a detached one: from then on something may come
	skip     func(s fumehood.Stream, n int64)
	offset   [2][]byte // what came of one: credit may have ended within it
	id       int       // of a detached one, set when it has started

	grace time.Duration
	stdin bool

	terse  bool        // whether it has started may first be told by its end; Wait receives
	answer *time.Timer // of a terse one: ends a guest that tells nothing
	mute   atomic.Bool // which it has done
	told   bool        // the guest has told that it has started

	started chan struct{} // closed when the guest has told that it has started
	ended   chan struct{} // closed when exit, err or lost is set
	exit    wire.Exit
	err     error
	lost    error // why the stream has ended before that
	kept    [2]int64

	closing sync.Once
}

// startWithin bounds the wait for a guest's word on a start, which takes it a few milliseconds, and a
// second where its machine is overloaded.
const startWithin = 30 * time.Second

func newProcess(cmd fumehood.Cmd, live bool, out provider.Sink) *Process {
	return &Process{
		live: live, out: out, grace: provider.KillAfter(&cmd), stdin: cmd.Stdin != nil || cmd.StdinPipe,
		caps:    [2]int64{provider.OutputCap(&cmd, fumehood.Stdout), provider.OutputCap(&cmd, fumehood.Stderr)},
		started: make(chan struct{}), ended: make(chan struct{}),
	}
}

// request says to the guest what to run.
func (p *Process) request(cmd fumehood.Cmd) wire.Exec {
	request := wire.Exec{
		Dir: []byte(cmd.Dir), Stdin: p.stdin, Live: p.live, Caps: p.caps, Terse: p.terse, GraceMS: p.grace.Milliseconds(), KillRest: cmd.KillRest,
	}
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

// Exec hands cmd over, at most once, and returns when it runs; without live it returns before, and that it could
// not be started is an error of Wait.
func (g *Guest) Exec(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (*Process, error) {
	p := newProcess(cmd, live, out)
	p.terse = !live && cmd.Stdin == nil // a reader is the caller's, and left alone where nothing runs
	request := p.request(cmd)
	if err := g.begin(ctx, p, wire.Request{Exec: &request}); err != nil {
		return nil, err
	}
	return p, nil
}

// begin sends a request for p, and waits for the guest's word that it runs.
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
			g.first.Close()
		})
		return nil
	}
	go p.receive()
	answer := time.NewTimer(startWithin)
	defer answer.Stop()
	select {
	case <-p.started:
	case <-p.ended:
		err = p.unstarted()
	case <-ctx.Done():
		err = ctx.Err()
	case <-answer.C: // stopped from inside, say: it is of no use to the next command either
		err = lost(fmt.Errorf("it has not answered within %v; whether the command ran is not known", startWithin))
		g.first.Close()
	}
	if err != nil {
		if r.Exec != nil && r.Exec.Detach {
			p.order(wire.Order{Kill: true}) // it would outlive the stream
		}
		p.close() // the guest kills it, should it have started just now
		<-p.ended
	}
	return err
}

func (p *Process) close() { p.closing.Do(p.s.Close) }

// unstarted is why a command that is over has not started; nil where it has.
func (p *Process) unstarted() error {
	switch {
	case p.told:
		return nil
	case p.err != nil:
		return p.err
	}
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest was lost before it told that the command had started; whether it ran is not known: %w", p.lost)}
}

// receive takes what the guest tells of the command until its end.
func (p *Process) receive() {
	defer close(p.ended)
	defer p.close()
	for {
		ev, err := p.s.Receive()
		if p.terse {
			p.answer.Stop()
		}
		if err != nil {
			p.lost = err // the guest is gone, or the stream was closed from this side
			if errors.Is(err, wire.ErrProtocol) {
				p.err = broken("%w", err)
			}
			return
		}
		first := !p.told && p.kept == [2]int64{}
		switch {
		case !p.told && !p.terse && ev.Type != wire.Message:
			p.err = broken("the first reply is neither a start nor a failure")
			return
		case p.told && p.watching && !p.followed.Load():
			p.err = broken("it tells of a command before it was asked")
			return
		}
		switch ev.Type {
		case wire.Data:
			if p.err = p.data(ev); p.err != nil {
				return
			}
		case wire.Message:
			var r wire.Reply
			switch err := json.Unmarshal(ev.Payload, &r); {
			case err != nil:
				p.err = broken("%w", err)
			case first && r.Exit == nil && r.Failed == nil && r.Started != nil && p.watching == (r.Started.ID > 0):
				p.id, p.told = r.Started.ID, true
				close(p.started)
				continue
			case first && r.Exit == nil && r.Failed != nil && r.Started == nil:
				p.err = startFailure(r.Failed)
			case r.Exit == nil || r.Started != nil || r.Failed != nil || !p.told && !p.terse:
				p.err = broken("an unexpected reply")
			default:
				p.exit = *r.Exit
				p.err = p.check()
			}
			return
		}
	}
}

// data passes output on.
func (p *Process) data(ev wire.Event) error {
	if p.watching && (ev.Channel == wire.StdoutAt || ev.Channel == wire.StderrAt) {
		return p.at(ev)
	}
	if ev.Channel != wire.Stdout && ev.Channel != wire.Stderr {
		return broken("output on channel %d", ev.Channel)
	}
	i := ev.Channel - wire.Stdout
	if len(p.offset[i]) > 0 {
		return broken("%d bytes of an offset", len(p.offset[i]))
	}
	p.kept[i] += int64(len(ev.Payload))
	if !p.live && !p.watching && p.kept[i] > p.caps[i] {
		return broken("more output than the cap of %d bytes", p.caps[i])
	}
	p.delivering.Store(true)
	p.out(fumehood.Stream(ev.Channel), ev.Payload)
	p.delivering.Store(false)
	p.s.Consumed(len(ev.Payload))
	return nil
}

// check refuses an exit that cannot be.
func (p *Process) check() error {
	e := p.exit
	for i, total := range e.Totals {
		want := total
		if !p.live && !p.watching {
			want = min(total, p.caps[i])
		}
		if p.kept[i] != want {
			return broken("%d bytes of output came, and %d are told", p.kept[i], total)
		}
	}
	switch {
	case e.Lost && e.Code == -1 && e.Signal == 0:
	case e.Signal == 0 && e.Code >= 0 && e.Code <= 255:
	case e.Signal > 0 && e.Signal <= 64 && e.Code == 128+e.Signal:
	default:
		return broken("a command ended with code %d and signal %d", e.Code, e.Signal)
	}
	if (e.WallUS != 0 || e.TimedOut) && !p.watching {
		return broken("a time of its own of a command that is not detached")
	}
	if e.WallUS < 0 || e.Survivors < 0 || e.UserUS < 0 || e.SystemUS < 0 || e.MaxRSS < 0 || e.Peak < 0 || e.OOMKills < 0 || e.PIDsLimits < 0 {
		return broken("a negative count")
	}
	return nil
}

var failures = map[string]error{
	wire.NoProgram: fumehood.ErrProgramNotFound, wire.NoExecutable: fumehood.ErrNotExecutable, wire.NoDir: fumehood.ErrDirNotFound,
	wire.NoStart: fumehood.ErrNotStarted, wire.NoResources: fumehood.ErrInfrastructure, wire.UsedUp: fumehood.ErrBroken, wire.Hindered: fumehood.ErrBroken,
	wire.NoRlimit: fumehood.ErrUnsupported,
	wire.NoRoom:   fumehood.ErrLimit, wire.NoDetached: fumehood.ErrConfig,
}

func startFailure(f *wire.Failed) error {
	class, ok := failures[f.What]
	if !ok {
		return broken("a start failed for want of %.100q", f.What)
	}
	e := &fumehood.Error{Class: class, Err: errors.New(f.Text)}
	switch f.What {
	case wire.NoRlimit:
		e.Hint = "limit the processes of the whole sandbox, with Limits.PIDs or --pids"
	case wire.NoRoom:
		e.Hint = "forget those that have ended, see Process.Forget"
	}
	return e
}

// Wait returns how the command ended, when it has and its output is delivered.
func (p *Process) Wait(context.Context) (provider.Exit, error) {
	if p.terse {
		p.receive()
	}
	<-p.ended
	if p.err != nil {
		return provider.Exit{}, p.err
	}
	if p.lost != nil {
		reason := "the connection to the sandbox was lost while it ran"
		switch {
		case p.mute.Load():
			reason = fmt.Sprintf("its sandbox has not answered within %v; whether it ran is not known", startWithin)
		case p.watching:
			reason = "the connection to the sandbox has ended; a detached command may run on there"
		case !p.told:
			reason = "the connection to the sandbox was lost before it told whether it runs"
		}
		return provider.Exit{Outcome: fumehood.Lost, Code: -1, Reason: reason}, nil
	}
	e := p.exit
	exit := provider.Exit{
		Outcome: fumehood.Exited, Code: e.Code, Signal: e.Signal, Totals: &e.Totals, Leaked: e.Survivors > 0,
		Duration: time.Duration(e.WallUS) * time.Microsecond,
		Usage: fumehood.Usage{
			User: time.Duration(e.UserUS) * time.Microsecond, System: time.Duration(e.SystemUS) * time.Microsecond,
			MaxRSS: e.MaxRSS, MemoryPeak: e.Peak, OOMKills: e.OOMKills, PIDsLimits: e.PIDsLimits,
		},
	}
	switch {
	case e.TimedOut:
		exit.Outcome, exit.Code = fumehood.TimedOut, -1
	case e.Lost && exit.Leaked:
		exit.Outcome = fumehood.Lost
		exit.Reason = fmt.Sprintf("its supervisor in the sandbox was killed, and so was what it had started, but for at least %d that cannot be seen or killed", e.Survivors)
	case e.Lost:
		exit.Outcome, exit.Reason = fumehood.Lost, "its supervisor in the sandbox was killed, and so was all that it had started"
	case e.Signal == 9 && e.OOMKills > 0:
		exit.Outcome = fumehood.OutOfMemory
	case e.Signal > 0:
		exit.Outcome = fumehood.Signaled
	}
	exit.CausedInside = e.Lost && exit.Outcome == fumehood.Lost // the guest itself lives, and tells it
	if exit.Outcome != fumehood.Signaled {
		exit.Signal = 0
	}
	return exit, nil
}
