// Package fake is an in-memory provider for unit tests of code that uses fumehood.Provider. Programs are Go
// functions, files are stored in a map, and nothing outside the test process is touched.
//
//	provider := fake.New(fake.Options{Programs: map[string]fake.Program{
//		"python3": func(ctx context.Context, p *fake.Proc) int {
//			fmt.Fprintln(p.Stdout, "42")
//			return 0
//		},
//	}})
//
// A sandbox has one user, root. It has no terminals, signals or limits, and its files have no links, modes or
// owners. Calls that need them are an ErrUnsupported; use package provider/local for such tests. A goroutine cannot
// be killed. If a function continues after the end of its context, its command ends one second later with Leaked
// set in the Result, and the goroutine is left behind.
package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/provider"
)

// Program is the function that runs for a command with its name. The lowest eight bits of its return value are the
// exit code. It should return soon after the end of ctx.
type Program func(ctx context.Context, p *Proc) int

// Proc gives a running program access to its sandbox.
type Proc struct {
	Args           []string // as in the command, starting with the program's name
	Env            []string // NAME=value, sorted
	Dir            string   // the working directory
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	box *sandbox
}

// ReadFile returns a file's content. A relative path is resolved against Dir.
func (p *Proc) ReadFile(name string) ([]byte, error) { return p.box.read(p.path(name)) }

// WriteFile creates or replaces a file, and creates missing parent directories. A relative path is resolved against
// Dir.
func (p *Proc) WriteFile(name string, data []byte) error {
	return p.box.write(p.path(name), data, 0o644, time.Time{})
}

func (p *Proc) path(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(p.Dir, name)
}

// Options configure a Provider. The zero value has no programs.
type Options struct {
	Programs map[string]Program // by name
}

// Provider is the in-memory provider. Create one with New.
type Provider struct {
	opts Options
	open box.Set
}

var _ fumehood.Provider = (*Provider)(nil)

// New returns a provider. It starts nothing, so it cannot fail.
func New(opts Options) *Provider { return &Provider{opts: opts} }

// Name returns "fake".
func (p *Provider) Name() string { return "fake" }

// Start starts a sandbox with one service, "default". The spec's Image is reported by ServiceInfo and otherwise
// ignored, as are Network and Limits: there is nothing to isolate. Mounts, another User and Compose are an
// ErrUnsupported.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if len(spec.Mounts) > 0 || len(spec.Tmpfs) > 0 || spec.User != "" && spec.User != user || spec.Compose != nil {
		return nil, &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the fake provider has no mounts, other users or Compose projects")}
	}
	spec.Dir = cmp.Or(spec.Dir, "/work")
	spec.Env = maps.Clone(spec.Env) // the caller may change it
	b := &sandbox{provider: p, files: map[string]file{}, dirs: map[string]bool{"/": true, "/tmp": true, spec.Dir: true}, running: map[*command]struct{}{}}
	sb, err := provider.Start(ctx, spec, func(ctx context.Context, spec fumehood.Spec) (_ provider.Backend, err error) {
		b.spec = spec
		_, b.place, err = p.open.Begin(ctx, spec.Name)
		return b, err
	})
	if err != nil {
		return nil, err
	}
	defer b.place.Settle()
	closes := sb.Close
	if spec.Keep {
		closes = func(context.Context) error { return nil }
	}
	b.place.Hold(closes)
	return sb, nil
}

// Close closes the sandboxes that are still open, except kept ones. Afterwards none can be started.
func (p *Provider) Close(ctx context.Context) error { return p.open.Close(context.WithoutCancel(ctx)) }

// sandbox is the backend of one sandbox, and of its only service.
type sandbox struct {
	provider *Provider
	place    *box.Place
	spec     fumehood.Spec

	mu      sync.Mutex
	files   map[string]file // by absolute path
	dirs    map[string]bool // by absolute path; parents of existing paths exist too
	running map[*command]struct{}
}

func (b *sandbox) Info() fumehood.Info {
	return fumehood.Info{Name: b.spec.Name, Provider: "fake", Services: []fumehood.ServiceInfo{{Name: "default", Image: b.spec.Image, Dir: b.spec.Dir}}}
}

func (b *sandbox) Service(string) provider.ServiceBackend { return b }

// Close kills everything that runs in the sandbox.
func (b *sandbox) Close(ctx context.Context) error {
	b.mu.Lock()
	var running []*command
	for c := range b.running {
		running = append(running, c)
	}
	b.mu.Unlock()
	for _, c := range running {
		if !c.Kill(ctx) {
			return errors.New("a program of the fake sandbox does not end with its context")
		}
	}
	b.place.Leave()
	return nil
}

func (b *sandbox) Start(ctx context.Context, cmd fumehood.Cmd, _ bool, out provider.Sink) (provider.ProcessBackend, error) {
	program := b.provider.opts.Programs[cmd.Args[0]]
	switch {
	case cmd.TTY || cmd.User != "" && cmd.User != user || cmd.Rlimits != (fumehood.Rlimits{}) || cmd.CPUTime != 0:
		return nil, unsupportedError("terminals, other users or limits")
	case program == nil:
		return nil, &fumehood.Error{Class: fumehood.ErrProgramNotFound, Err: fmt.Errorf("%s: no program of the fake provider", cmd.Args[0])}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stdin, input := io.Pipe()
	c := &command{out: out, stdin: input, cancel: cancel, ended: make(chan struct{}), left: make(chan struct{})}
	env := maps.Clone(b.spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, cmd.Env)
	p := &Proc{
		Args: cmd.Args, Env: provider.Environ(&fumehood.Cmd{Env: env}), Dir: cmd.Dir,
		Stdin: stdin, Stdout: stream{c, fumehood.Stdout}, Stderr: stream{c, fumehood.Stderr}, box: b,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[c] = struct{}{}
	go func() {
		code := program(ctx, p) & 0xff
		c.end(provider.Exit{Outcome: fumehood.Exited, Code: code})
		_ = stdin.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.running, c)
		close(c.ended)
	}()
	return c, nil
}

// command is one running command.
type command struct {
	stdin  *io.PipeWriter
	cancel context.CancelFunc
	ended  chan struct{} // closed when the program has returned
	left   chan struct{} // closed when Wait gives up on the program

	mu   sync.Mutex // held while out runs
	out  provider.Sink
	exit *provider.Exit // the first value counts; later output is dropped
	gone bool           // left is closed
}

// stream is a program's standard output or standard error.
type stream struct {
	c *command
	s fumehood.Stream
}

func (w stream) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.c.exit != nil {
		return 0, io.ErrClosedPipe
	}
	w.c.out(w.s, p)
	return len(p), nil
}

func (c *command) end(how provider.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit == nil {
		c.exit = &how
	}
}

const (
	user    = "root" // the only user
	sigKill = 9
)

// patience is how long a program may take to return after the end of its context.
const patience = time.Second

// Wait returns when the program has returned, or has not returned in time after a kill.
func (c *command) Wait(context.Context) (provider.Exit, error) {
	select {
	case <-c.ended:
	case <-c.left:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.exit, nil
}

// Kill cancels the program's context and waits for it to return.
func (c *command) Kill(context.Context) bool {
	c.end(provider.Exit{Outcome: fumehood.Signaled, Code: 128 + sigKill, Signal: sigKill})
	c.cancel()
	_ = c.stdin.CloseWithError(io.ErrClosedPipe) // unblocks a read
	select {
	case <-c.ended:
		return true
	case <-time.After(patience):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.gone = true
		close(c.left)
	}
	return false
}

func (c *command) Write(p []byte) (int, error) { return c.stdin.Write(p) }

func (c *command) CloseStdin() error { return c.stdin.Close() }

// Signal supports only SIGKILL.
func (c *command) Signal(ctx context.Context, sig int) error {
	if sig != sigKill {
		return unsupportedError("signals")
	}
	c.Kill(ctx)
	return nil
}

func (c *command) Resize(context.Context, uint16, uint16) error { return unsupportedError("terminals") }

func unsupportedError(feature string) error {
	return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the fake provider has no %s", feature)}
}
