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

// ExecuteOptions describe the command to run. The zero value runs the spec's command without an entry file.
type ExecuteOptions struct {
	// Command is shell text. Empty means the spec's command line for Entry.
	Command string
	Entry   string
	// Stdin is the standard input of the command; nil is an empty one. The setup always has an empty standard
	// input. For input in pieces see Chunks.
	Stdin io.Reader
	// Timeout limits the time of the command, counted from the end of the setup. The setup has its own limit in
	// the spec. Both are measured on this machine's clock. 0 means no limit.
	Timeout time.Duration
	// CPUTime limits the processor time of the setup and the command together, as of fumehood.Cmd. 0 means no limit.
	CPUTime time.Duration
	// Env takes precedence over all other variables.
	Env map[string]string
	// StdoutCap and StderrCap limit the output that a Result keeps, as in fumehood.Cmd. They apply to the
	// command's output and separately to the setup's.
	StdoutCap, StderrCap int64
}

// Chunks returns a standard input made of pieces. Each piece is sent separately.
func Chunks(pieces ...[]byte) io.Reader {
	readers := make([]io.Reader, len(pieces))
	for i, p := range pieces {
		readers[i] = bytes.NewReader(p)
	}
	return io.MultiReader(readers...)
}

// Result describes how a command ended, and holds the output of the command and its setup.
type Result struct {
	Stdout, Stderr           fumehood.Output // of the command
	SetupStdout, SetupStderr fumehood.Output // of the setup; empty without one
	// SetupEnded reports that the script ended before the command began: the setup exited, failed under
	// fail_fast, or timed out. All output is then the setup's, and so are exit code and outcome.
	SetupEnded bool

	Outcome  fumehood.Outcome
	ExitCode int // as in fumehood.Result
	Signal   int // as in fumehood.Result
	// Reason is as in fumehood.Result. If Kill or Cleanup of the runtime ended the command, it is "killed by the
	// caller" or "cleaned up by the caller".
	Reason       string
	Leaked       bool // some of its processes may still be running; see fumehood.Result
	CausedInside bool // as in fumehood.Result

	Elapsed time.Duration  // since the command was sent to the sandbox, including the setup
	Usage   fumehood.Usage // including the setup's
}

// TimedOut reports whether a time limit ended it: the command's, or with SetupEnded the setup's.
func (r *Result) TimedOut() bool {
	return r.Outcome == fumehood.TimedOut || r.Outcome == fumehood.OutOfMemory && r.ExitCode == -1
}

// Phase is the part of a script that wrote an output.
type Phase string

// The phases, in order.
const (
	Setup   Phase = "setup"
	Command Phase = "command"
)

// Event reports output of a command or its setup, or, as the last event, the result.
type Event struct {
	Phase  Phase           // of Data
	Stream fumehood.Stream // of Data
	Data   []byte          // the receiver may keep it
	Result *Result         // set only in the last event
}

// ErrStdin is wrapped by the error of a Stream call with a standard input.
var ErrStdin = errors.New("a stream takes no standard input")

// Execute runs a command in the shell of the setup, after the setup, and waits until it ends. The container
// stays, with all changes that the command made. An error means that the infrastructure failed or that no shell
// could be started; how the command ended is in the Result. If ctx ends first, the command is killed and
// Execute returns an ErrCanceled. While another command runs it returns an ErrBusy.
//
// The setup and the command form one program for a shell: bash if the container has it, else sh. It is a login
// shell only if the spec requires one. Its variables come from the image, the spec and the call. In an evaluation
// HOME is set to /tmp if it would be in the workspace and neither the spec nor the call sets it. The program is
// passed as an argument, not as a file; a program of 128 KiB or more is an ErrConfig.
//
// A random marker separates the output of the two. Processes that run after it cannot learn it. However, code
// under test that the setup itself runs can read the arguments of its own shell.
func (r *Runtime) Execute(ctx context.Context, opts ExecuteOptions) (*Result, error) {
	const op = "execute"
	if err := r.begin(op); err != nil {
		return nil, err
	}
	res, err := r.execute(ctx, opts)
	r.finish(res)
	if err != nil {
		return nil, opError(op, err)
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

// Stream runs a command as Execute does. It yields the output of the command and its setup as it arrives, and
// then the Result. While the loop's body is busy, the command's output waits. Leaving the loop early kills the
// command. A Stdin is an ErrStdin; to write to a running command, use Start of Service.
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
		var run *run
		defer func() {
			switch {
			case finished:
			case run != nil && run.started: // the command was killed
				r.finish(&Result{ExitCode: -1})
			default:
				r.finish(nil)
			}
		}()
		run, err := r.s.newRun(r.opts, opts)
		if err != nil {
			yield(Event{}, opError(op, err))
			return
		}
		for ev, err := range r.events(ctx, run) {
			if ev.Result != nil {
				r.finish(ev.Result) // before the loop's body receives it
				finished = true
			}
			if !yield(ev, opError(op, err)) {
				return
			}
		}
	}
}

// run is a command that is ready to be handed over.
type run struct {
	cmd     fumehood.Cmd
	text    string // for a shell
	marker  string // between setup and command; empty without a setup
	timeout time.Duration
	started bool
}

// maxScript is the length of the longest argument that the kernel accepts, in bytes (MAX_ARG_STRLEN with its
// NUL).
const maxScript = 128<<10 - 1

func (s *Session) newRun(spawn SpawnOptions, opts ExecuteOptions) (*run, error) {
	if opts.Timeout < 0 {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("timeout %v is negative", opts.Timeout)}
	}
	if opts.CPUTime < 0 {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("limit of processor time %v is negative", opts.CPUTime)}
	}
	r := &run{text: opts.Command, timeout: opts.Timeout, cmd: fumehood.Cmd{
		Stdin: opts.Stdin, Env: opts.Env, CPUTime: opts.CPUTime, StdoutCap: opts.StdoutCap, StderrCap: opts.StderrCap,
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
			Class: fumehood.ErrConfig, Err: fmt.Errorf("script too long: setup and command have %d bytes, a shell takes at most %d", len(r.text), maxScript),
			Hint: "put the long part into a file and run that",
		}
	}
	return r, nil
}

// setup returns the commands that run before each command of a runtime.
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

// shells returns the shells that may run a script, in order of preference.
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

// start hands the command to the first shell that the container has. If a shell is missing, nothing has run.
func (r *Runtime) start(ctx context.Context, run *run) (p fumehood.Process, err error) {
	r.s.awaitThaw()
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

// join kills a command that still runs, and waits until it has ended.
func (r *Runtime) join(ctx context.Context, cancel func(), p fumehood.Process) {
	cancel()
	_, _ = p.Wait(context.WithoutCancel(ctx)) // how it ended has been reported, or is not needed
}

func resultOf(res *fumehood.Result) *Result {
	return &Result{
		Stdout: res.Stdout, Stderr: res.Stderr, Outcome: res.Outcome, ExitCode: res.ExitCode, Signal: res.Signal,
		Reason: res.Reason, Leaked: res.Leaked, CausedInside: res.CausedInside, Elapsed: res.Duration, Usage: res.Usage,
	}
}
