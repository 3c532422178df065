package workers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// maxCap is how many bytes of a stream a worker keeps at most. Results with more are made of the events.
const maxCap = 64 << 20

// maxLine bounds the bytes of an event.
const maxLine = 64 << 20

// Start starts a command. One whose output nobody follows, and that has no input, is one request. In a kept sandbox, Close
// asks how it has ended.
func (s *service) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	live = live || cmd.StdoutCap > maxCap || cmd.StderrCap > maxCap
	sent := commandOf(&cmd)
	if !live && cmd.Stdin == nil && !s.sb.keep {
		return s.runWhole(ctx, sent, out), nil
	}
	detach := cmd.Detach && s.sb.keep
	sent.Detach = detach
	sent.StdinPipe = cmd.StdinPipe || cmd.Stdin != nil
	if !detach {
		sent.Timeout = 0 // the caller enforces it
	}
	if live && !detach { // all output comes with the events
		sent.Events, sent.StdoutCap, sent.StderrCap = true, fumehood.KeepNone, fumehood.KeepNone
	}
	r := s.request(http.MethodPost, "/processes", "")
	r.json = sent
	var made api.Process
	if err := s.sb.w.callOnce(ctx, r, &made); err != nil {
		return nil, err
	}
	p := s.newProcess(made.ID, live || detach, sent.StdinPipe, out)
	if detach {
		return s.newDetached(p, made.Detached), nil
	}
	if s.sb.keep {
		s.sb.mu.Lock()
		s.sb.running[p] = true
		s.sb.mu.Unlock()
	}
	return p, nil
}

// commandOf returns the JSON form of a command, without its input.
func commandOf(cmd *fumehood.Cmd) *api.Cmd {
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	c := &api.Cmd{
		Args: api.Texts(cmd.Args), Dir: api.Text(cmd.Dir), Env: cmd.Env, User: cmd.User, Timeout: millis(cmd.Timeout), CPUTime: millis(cmd.CPUTime),
		Grace: millis(cmd.Grace), StdoutCap: min(cmd.StdoutCap, maxCap), StderrCap: min(cmd.StderrCap, maxCap), KillRest: cmd.KillRest,
		ViaEngine: cmd.ViaEngine, TTY: cmd.TTY, Rows: cmd.Rows, Cols: cmd.Cols, Term: cmd.Term,
	}
	if cmd.Grace == fumehood.NoGrace {
		c.Grace = -1
	}
	if l := cmd.Rlimits; l != (fumehood.Rlimits{}) {
		c.Rlimits = &api.Rlimits{CPU: int64(l.CPU / time.Second), FileSize: l.FileSize, OpenFiles: l.OpenFiles, Processes: l.Processes}
	}
	return c
}

// run is a command that is one request.
type run struct {
	out    provider.Sink
	skip   func(fumehood.Stream, int64)
	cancel context.CancelFunc
	ended  chan struct{} // closed when the fields below are set
	result fumehood.Result
	err    error
}

// runWhole runs a command. The worker enforces its timeout.
func (s *service) runWhole(ctx context.Context, cmd *api.Cmd, out provider.Sink) *run {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the caller kills it when its context ends
	p := &run{out: out, cancel: cancel, ended: make(chan struct{})}
	r := s.request(http.MethodPost, "/run", "")
	r.json = cmd
	go func() {
		defer close(p.ended)
		defer cancel()
		p.err = s.sb.w.callOnce(ctx, r, &p.result)
	}()
	return p
}

// EnforceTimeout marks that the worker enforces the timeout.
func (p *run) EnforceTimeout() {}

func (p *run) OnGap(skip func(fumehood.Stream, int64)) { p.skip = skip }

func (p *run) Wait(context.Context) (provider.Exit, error) {
	<-p.ended
	switch lost, ok := asLost(p.err); {
	case ok && lost.sent:
		return lostExit(p.err), nil
	case p.err != nil:
		return provider.Exit{}, p.err
	}
	deliver(&p.result, p.out, p.skip, [3]int64{})
	return exitOf(&p.result), nil
}

func (p *run) Write([]byte) (int, error)                    { return 0, errNoInput }
func (p *run) CloseStdin() error                            { return nil } // it has none
func (p *run) Signal(context.Context, int) error            { return errNoSignal }
func (p *run) Resize(context.Context, uint16, uint16) error { return errNoSignal }

// Kill cancels the request, which ends when the command is killed.
func (p *run) Kill(context.Context) bool {
	p.cancel()
	<-p.ended
	_, lost := asLost(p.err)
	return !lost || errors.Is(p.err, context.Canceled)
}

var (
	errNoInput  = errors.New("the command has no input")
	errNoSignal = &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("the command was not started for this")}
)

// exitOf returns how a command ended, as its worker says.
func exitOf(r *fumehood.Result) provider.Exit {
	return provider.Exit{
		Outcome: r.Outcome, Code: r.ExitCode, Signal: r.Signal, Reason: r.Reason, CausedInside: r.CausedInside, Judged: true,
		Totals: &[2]int64{r.Stdout.Total, r.Stderr.Total}, Duration: r.Duration, Usage: r.Usage, Leaked: r.Leaked,
	}
}

// lostExit returns the end of a command whose worker, sandbox or answer is lost.
func lostExit(err error) provider.Exit {
	return provider.Exit{Outcome: fumehood.Lost, Code: -1, Reason: err.Error()}
}

// deliver passes on what a result keeps of the output beyond offsets.
func deliver(r *fumehood.Result, out provider.Sink, skip func(fumehood.Stream, int64), at [3]int64) {
	for s, o := range map[fumehood.Stream]fumehood.Output{fumehood.Stdout: r.Stdout, fumehood.Stderr: r.Stderr} {
		first := o.Total - int64(len(o.Bytes))
		if first > at[s] {
			skip(s, first-at[s])
			at[s] = first
		}
		if n := at[s] - first; n < int64(len(o.Bytes)) {
			out(s, o.Bytes[n:])
		}
	}
}

// process is a command that was started.
type process struct {
	s     *service
	path  string // below the sandbox's
	live  bool   // its events are followed
	stdin bool
	out   provider.Sink
	skip  func(fumehood.Stream, int64)
	at    [3]int64 // offsets by stream

	life   context.Context //nolint:containedctx // of the wait for its end
	cancel context.CancelFunc
	ended  chan struct{} // closed when Wait has ended
	mu     sync.Mutex
	broken error // why it was given up
}

func (s *service) newProcess(id string, live, stdin bool, out provider.Sink) *process {
	p := &process{s: s, path: "/processes/" + id, live: live, stdin: stdin, out: out, ended: make(chan struct{})}
	p.life, p.cancel = context.WithCancel(s.sb.closed)
	return p
}

func (p *process) request(method, path string) *request { return p.s.sb.request(method, p.path+path) }

func (p *process) call(ctx context.Context, r *request) error { return p.s.sb.w.call(ctx, r, nil) }

func (p *process) OnGap(skip func(fumehood.Stream, int64)) { p.skip = skip }

// Wait waits for the end. What the worker no longer knows is lost.
func (p *process) Wait(context.Context) (provider.Exit, error) {
	defer close(p.ended)
	defer p.cancel()
	defer func() {
		p.s.sb.mu.Lock()
		defer p.s.sb.mu.Unlock()
		delete(p.s.sb.running, p)
	}()
	res := &fumehood.Result{}
	var err error
	if p.live {
		res, err = p.followEvents()
	} else if err = p.s.sb.w.call(p.life, p.request(http.MethodGet, "/result"), res); err == nil { //nolint:contextcheck // the command's own
		deliver(res, p.out, p.skip, p.at)
	}
	p.mu.Lock()
	broken := p.broken
	p.mu.Unlock()
	if broken != nil {
		err = broken
	}
	if _, lost := asLost(err); lost || isGone(err) || err != nil && (p.life.Err() != nil || codeOf(err) == fumehood.CodeCanceled) {
		return lostExit(err), nil
	}
	if err != nil {
		return provider.Exit{}, err
	}
	return exitOf(res), nil
}

// followEvents passes on the output, and returns the result. A connection that breaks is opened again where it was.
func (p *process) followEvents() (*fumehood.Result, error) {
	var since time.Time
	for {
		r := p.request(http.MethodGet, "/events")
		r.query.Set("stdout", strconv.FormatInt(p.at[fumehood.Stdout], 10))
		r.query.Set("stderr", strconv.FormatInt(p.at[fumehood.Stderr], 10))
		r.query.Set("wait", "true")
		body, err := p.s.sb.w.openStream(p.life, r)
		if err != nil { // it was repeated for a while
			return nil, err
		}
		before := p.at
		res, err := p.events(body)
		body.Close()
		if _, lost := asLost(err); !lost || p.life.Err() != nil {
			return res, err
		}
		if since.IsZero() || p.at != before {
			since = time.Now()
		}
		if time.Since(since) > patience {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-p.life.Done():
		}
	}
}

// events passes on what a connection brings until it brings the end, or breaks.
func (p *process) events(body io.Reader) (*fumehood.Result, error) {
	return eachEvent(body, func(s fumehood.Stream, e *api.Event) {
		if n := e.Offset - p.at[s]; n > 0 {
			p.skip(s, n)
		}
		if p.at[s] = e.Offset + int64(len(e.Data)); len(e.Data) > 0 {
			p.out(s, e.Data)
		}
	})
}

// eachEvent calls a function with the output in a stream of events. It returns the result in the last one.
func eachEvent(body io.Reader, output func(fumehood.Stream, *api.Event)) (*fumehood.Result, error) {
	streams := map[string]fumehood.Stream{"stdout": fumehood.Stdout, "stderr": fumehood.Stderr}
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	lines.Split(splitLine)
	for lines.Scan() {
		var e api.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
		}
		switch e.Type {
		case api.EventOutput:
			output(streams[e.Stream], &e)
		case api.EventEnd:
			return e.Result, nil
		case api.EventError:
			return nil, errorOf(*e.Error, 0)
		}
	}
	return nil, lines.Err()
}

// splitLine is bufio.ScanLines, without the part of a line before a connection breaks.
func splitLine(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if atEOF && bytes.IndexByte(data, '\n') < 0 {
		return len(data), nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}

func (p *process) Write(b []byte) (int, error) {
	if !p.stdin {
		return 0, errNoInput
	}
	r := p.request(http.MethodPost, "/stdin")
	r.data = b
	err := p.call(p.s.sb.closed, r) // the answer may come after the command's end
	if err == nil {
		return len(b), nil
	}
	if lost, ok := asLost(err); ok && lost.sent && p.life.Err() == nil {
		p.giveUp(&lostError{p.s.sb.w.name, errors.New("it is not known which input has arrived: " + lost.err.Error()), true})
	}
	return 0, err
}

// giveUp kills the command, and makes its outcome Lost.
func (p *process) giveUp(why error) {
	p.mu.Lock()
	p.broken = why
	p.mu.Unlock()
	p.Kill(p.s.sb.closed)
	p.cancel()
}

func (p *process) CloseStdin() error {
	if !p.stdin {
		return nil
	}
	return p.call(p.s.sb.closed, p.request(http.MethodDelete, "/stdin"))
}

func (p *process) Signal(ctx context.Context, sig int) error {
	r := p.request(http.MethodPost, "/signal")
	r.json = map[string]int{"signal": sig}
	return p.call(ctx, r)
}

func (p *process) Resize(ctx context.Context, rows, cols uint16) error {
	r := p.request(http.MethodPost, "/resize")
	r.json = map[string]uint16{"rows": rows, "cols": cols}
	return p.call(ctx, r)
}

// Kill kills the command. If the worker cannot be reached, it does so when the lease ends.
func (p *process) Kill(ctx context.Context) bool {
	r := p.request(http.MethodPost, "/kill")
	r.json, r.again = struct{}{}, true
	err := p.call(ctx, r)
	if _, lost := asLost(err); lost {
		p.cancel()
		return false
	}
	return true
}
