package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
)

// ExecuteOptions say what is run. The zero value runs the spec's command without an entry file.
type ExecuteOptions struct {
	// Command is shell text. Empty means the spec's command line for Entry.
	Command string
	Entry   string
	// Stdin is the command's standard input, not the set-up's, which is empty. Nil is an empty one. For
	// input in pieces see Chunks.
	Stdin io.Reader
	// Timeout limits the command's time, from the end of the set-up on; the set-up has the spec's own. Both
	// are on this machine's clock. 0 means no limit.
	Timeout time.Duration
	// Env wins over all other variables.
	Env map[string]string
	// StdoutCap and StderrCap limit what a Result keeps, as in fumehood.Cmd, of the command's output and, each
	// again, of the set-up's.
	StdoutCap, StderrCap int64
}

// Chunks is a standard input of pieces. Each is handed over by itself.
func Chunks(pieces ...[]byte) io.Reader {
	readers := make([]io.Reader, len(pieces))
	for i, p := range pieces {
		readers[i] = bytes.NewReader(p)
	}
	return io.MultiReader(readers...)
}

// Result is how a command ended, and what it and its set-up wrote.
type Result struct {
	Stdout, Stderr           fumehood.Output // of the command
	SetupStdout, SetupStderr fumehood.Output // of the set-up; empty without one
	// SetupEnded says that the script ended before the command began: the set-up exited, failed under
	// fail_fast, or took too long. All output is the set-up's then, as are code and outcome.
	SetupEnded bool

	Outcome  fumehood.Outcome
	ExitCode int    // as in fumehood.Result
	Signal   int    // as in fumehood.Result
	Reason   string // what is known of the reason where the outcome is Lost
	Leaked   bool   // some of its processes may still run; see fumehood.Result

	Elapsed time.Duration  // from when it was handed over, the set-up included
	Usage   fumehood.Usage // the set-up's included
}

// TimedOut reports whether a limit of time ended it: the command's, or with SetupEnded the set-up's.
func (r *Result) TimedOut() bool { return r.Outcome == fumehood.TimedOut }

// Phase is whose an output is.
type Phase string

// The phases, in their order.
const (
	Setup   Phase = "setup"
	Command Phase = "command"
)

// Event is one thing that a command did: it or its set-up wrote, or (the last event) it ended.
type Event struct {
	Phase  Phase           // of Data
	Stream fumehood.Stream // of Data
	Data   []byte          // the receiver may keep it
	Result *Result         // set in the last event only: finished
}

// ErrStdin is in the error of a Stream with a standard input.
var ErrStdin = errors.New("a stream takes no standard input")

// Execute runs a command to its end, after the set-up and in its shell. The container stays, with all that
// was changed in it. The error says that we failed, or that no shell could be started; how the command
// ended is in the Result. When ctx ends first the command is killed, and the error is an ErrCancelled.
// While another command runs it is an ErrBusy.
//
// The set-up and the command are one program for a shell: bash where there is one, else sh. Neither is a login shell, unless the
// spec says so: its variables are those of the image, the spec and the call. In an evaluation whose HOME would be in the
// workspace, and is not set by the spec or the call, it is /tmp. The program
// is handed over as an argument and not as a file; one of 128 KiB or more is an ErrConfig.
// Between the two comes a random marker. It is kept from what runs after it; code under test that the
// set-up itself runs can read its own shell's arguments.
func (r *Runtime) Execute(ctx context.Context, opts ExecuteOptions) (*Result, error) {
	const op = "execute"
	if err := r.begin(op); err != nil {
		return nil, err
	}
	res, err := r.execute(ctx, opts)
	r.finish(res)
	if err != nil {
		return nil, failed(op, err)
	}
	return res, nil
}

func (r *Runtime) execute(ctx context.Context, opts ExecuteOptions) (res *Result, err error) {
	run, err := r.s.newRun(r.opts, opts)
	if err != nil {
		return nil, err
	}
	for ev, err := range r.events(ctx, run) {
		if err != nil {
			return nil, err
		}
		res = ev.Result
	}
	return res, nil
}

// Stream runs a command as Execute does, and yields what it and its set-up write as it comes, and at last
// the Result. The command is held back while the loop's body is busy. Leaving the loop early kills it. A
// Stdin is an ErrStdin: who writes to a command that runs uses Start of Service.
func (r *Runtime) Stream(ctx context.Context, opts ExecuteOptions) iter.Seq2[Event, error] {
	const op = "stream"
	return func(yield func(Event, error) bool) {
		if opts.Stdin != nil {
			yield(Event{}, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: ErrStdin, Hint: "use Start of the runtime's Service, or Execute"})
			return
		}
		if err := r.begin(op); err != nil {
			yield(Event{}, err)
			return
		}
		finished := false
		defer func() {
			if !finished {
				r.finish(nil)
			}
		}()
		run, err := r.s.newRun(r.opts, opts)
		if err != nil {
			yield(Event{}, failed(op, err))
			return
		}
		for ev, err := range r.events(ctx, run) {
			if ev.Result != nil {
				r.finish(ev.Result) // before the loop's body learns of it
				finished = true
			}
			if !yield(ev, failed(op, err)) {
				return
			}
		}
	}
}

// run is one command, ready to be handed over.
type run struct {
	cmd     fumehood.Cmd
	text    string // for a shell
	marker  string // between set-up and command; empty where there is no set-up
	timeout time.Duration
}

// maxScript is the longest argument that the kernel takes, in bytes (MAX_ARG_STRLEN, with its NUL).
const maxScript = 128<<10 - 1

func (s *Session) newRun(spawn SpawnOptions, opts ExecuteOptions) (*run, error) {
	if opts.Timeout < 0 {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the timeout %v is negative", opts.Timeout)}
	}
	r := &run{text: opts.Command, timeout: opts.Timeout, cmd: fumehood.Cmd{
		Stdin: opts.Stdin, Env: opts.Env, StdoutCap: opts.StdoutCap, StderrCap: opts.StderrCap,
		TTY: s.local() && s.env.Local.RequiresTTY,
	}}
	if r.text == "" {
		var err error
		if r.text, err = s.env.Commands.CommandLine(opts.Entry, s.opts.Kind == Agent); err != nil {
			return nil, err
		}
	}
	home := ""
	if s.opts.Kind == Evaluation && !s.local() {
		home = s.env.HomeOutside(spawn.Env, opts.Env)
	}
	if setup := s.setup(spawn); len(setup) > 0 {
		r.marker = newMarker()
		r.text = script(setup, s.env.Setup.FailFast, r.marker, r.text)
	}
	r.text = home + r.text
	if len(r.text) >= maxScript {
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("the set-up and the command have %d bytes together, and a shell takes %d at most", len(r.text), maxScript),
			Hint: "put the long part into a file, and run that",
		}
	}
	return r, nil
}

// setup is what runs before each command of a runtime.
func (s *Session) setup(spawn SpawnOptions) (lines []string) {
	if spawn.DisableSetup {
		return nil
	}
	c := s.env.Setup
	lines = slices.Clone(c.Commands)
	if s.opts.Snapshot != "" && c.ResumeCommands != nil {
		lines = slices.Clone(c.ResumeCommands)
	}
	if s.opts.Kind == Evaluation {
		lines = append(lines, c.EvalCommands...)
	}
	if spawn.Setup != "" {
		lines = append(lines, spawn.Setup)
	}
	return lines
}

// shells are those that may run a script, in this order.
func (r *Runtime) shells() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.opts.DisableSetup:
		return [][]string{{"/bin/sh", "-c"}}
	case r.shell != nil:
		return [][]string{r.shell}
	case r.s.local() && r.s.env.Local.Shell != "":
		return [][]string{{r.s.env.Local.Shell, "-c"}}
	}
	if r.s.env.Setup.LoginShell {
		return [][]string{{"bash", "-l", "-c"}, {"sh", "-l", "-c"}}
	}
	return [][]string{{"bash", "-c"}, {"sh", "-c"}}
}

// start hands the command to the first shell that the container has. Where one is missing, nothing has run.
func (r *Runtime) start(ctx context.Context, run *run) (p fumehood.Process, err error) {
	r.s.thawed()
	for _, shell := range r.shells() {
		run.cmd.Args = append(append([]string{}, shell...), run.text)
		if p, err = r.svc.Start(ctx, run.cmd); errors.Is(err, fumehood.ErrProgramNotFound) {
			continue
		}
		if err == nil {
			r.mu.Lock()
			r.shell = shell
			r.mu.Unlock()
		}
		return p, err
	}
	return p, err
}

// join ends a command that still runs, and waits for its end.
func (r *Runtime) join(ctx context.Context, cancel func(), p fumehood.Process) {
	cancel()
	_, _ = p.Wait(context.WithoutCancel(ctx)) // how it ended is told, or nobody wants to know
}

func resultOf(res *fumehood.Result) *Result {
	return &Result{
		Stdout: res.Stdout, Stderr: res.Stderr, Outcome: res.Outcome, ExitCode: res.ExitCode, Signal: res.Signal,
		Reason: res.Reason, Leaked: res.Leaked, Elapsed: res.Duration, Usage: res.Usage,
	}
}
