package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/fumehood/fumehood"
)

const sigKill = 9

// harmless are the signals that end no program by default: CHLD, CONT, URG, WINCH, by their Linux numbers.
var harmless = []int{17, 18, 23, 28}

// Proc is a running program's view of its sandbox. Paths may be relative to Dir.
type Proc struct {
	Args           []string // as the command has them, the program's name first
	Env            []string // NAME=value, sorted
	Dir            string   // the working directory
	UID, GID       int
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	box     *box
	command *command
	program Program
	input   *io.PipeReader // nil for what was spawned, which has no input
	done    chan struct{}  // closed when the goroutine has ended

	mu     sync.Mutex
	cancel context.CancelCauseFunc
	ended  bool
	how    fumehood.Exit
	deaf   map[int]bool
	caught map[int]chan struct{}
}

// run starts p's goroutine.
func (b *box) run(ctx context.Context, p *Proc) error {
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.done = make(chan struct{})
	if p.Stdout == nil {
		p.Stdout, p.Stderr = stream{p, fumehood.Stdout}, stream{p, fumehood.Stderr}
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		p.cancel(nil)
		return classed(fumehood.ErrUnavailable, "the sandbox is closed")
	}
	b.procs[p] = struct{}{}
	b.mu.Unlock()
	p.command.mu.Lock()
	p.command.procs = append(p.command.procs, p)
	p.command.mu.Unlock()
	go func() {
		code := -1
		defer func() { // also when Raise ends the goroutine
			p.end(fumehood.Exit{Outcome: fumehood.Exited, Code: code & 0xff}, errEnded)
			b.mu.Lock()
			delete(b.procs, p)
			b.mu.Unlock()
			p.command.mu.Lock()
			p.command.procs = slices.DeleteFunc(p.command.procs, func(q *Proc) bool { return q == p })
			p.command.mu.Unlock()
			close(p.done)
		}()
		code = p.program(ctx, p)
	}()
	return nil
}

var errEnded = errors.New("the program has ended")

// end records how the program ended; the first word counts. From then on all it does fails.
func (p *Proc) end(how fumehood.Exit, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended, p.how = true, how
	p.cancel(why)
	if p.input != nil {
		p.input.CloseWithError(why)
	}
}

func (p *Proc) exit() fumehood.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.how
}

// signal does to the program what the kernel would.
func (p *Proc) signal(sig int) {
	p.mu.Lock()
	caught, deaf := p.caught[sig], p.deaf[sig]
	p.mu.Unlock()
	switch {
	case sig == sigKill:
	case caught != nil:
		select {
		case caught <- struct{}{}:
		default: // one is pending already
		}
		return
	case deaf, sig == 0, slices.Contains(harmless, sig):
		return
	}
	p.end(fumehood.Exit{Outcome: fumehood.Signaled, Code: 128 + sig, Signal: sig}, fmt.Errorf("signal %d", sig))
}

// alive fails when the program has been ended.
func (p *Proc) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errEnded
	}
	return nil
}

// stream is standard output or error.
type stream struct {
	p *Proc
	s fumehood.Stream
}

func (w stream) Write(b []byte) (int, error) {
	if err := w.p.alive(); err != nil {
		return 0, err
	}
	w.p.command.emit(w.s, b)
	return len(b), nil
}

// Getenv is the value of an environment variable; empty where it is not set.
func (p *Proc) Getenv(name string) string {
	for _, kv := range p.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// Raise sends the program a signal, by its Linux number. Where that ends it, Raise does not return.
func (p *Proc) Raise(sig int) {
	p.signal(sig)
	if p.alive() != nil {
		runtime.Goexit()
	}
}

// Ignore makes the program deaf to a signal; SIGKILL ends it all the same.
func (p *Proc) Ignore(sig int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf == nil {
		p.deaf = map[int]bool{}
	}
	p.deaf[sig] = true
}

// Catch returns a channel that receives when the signal comes, which then does not end the program.
func (p *Proc) Catch(sig int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.caught == nil {
		p.caught = map[int]chan struct{}{}
	}
	if p.caught[sig] == nil {
		p.caught[sig] = make(chan struct{}, 1)
	}
	return p.caught[sig]
}

// Spawn runs a program as a child, which lives on when its parent ends by itself, and ends when the
// command is killed or the sandbox closed. It has no input, and writes where its parent does. ctx is the
// parent's, of which the child inherits the values but not the end. wait blocks until it has ended.
func (p *Proc) Spawn(ctx context.Context, args ...string) (wait func(), err error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, classed(fumehood.ErrConfig, "no program to spawn")
	}
	who := cred{p.UID, p.GID}
	program, err := p.box.find(who, args[0], p.Dir, p.Getenv("PATH"))
	if err != nil {
		return nil, err
	}
	child := &Proc{
		Args: args, Env: p.Env, Dir: p.Dir, UID: p.UID, GID: p.GID, Stdin: strings.NewReader(""),
		box: p.box, command: p.command, program: program,
	}
	if err := p.box.run(context.WithoutCancel(ctx), child); err != nil {
		return nil, err
	}
	return func() { <-child.done }, nil
}

func (p *Proc) cred() cred { return cred{p.UID, p.GID} }

func (p *Proc) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return p.Dir + "/" + name
}

// ReadFile returns a regular file's content, which the caller must not change.
func (p *Proc) ReadFile(name string) ([]byte, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	data, err := p.box.fs.read(p.cred(), p.path(name))
	return data, err
}

// WriteFile makes or replaces a regular file and the directories above it. The data is kept: the caller
// must not change it afterwards.
func (p *Proc) WriteFile(name string, data []byte, perm fs.FileMode) error {
	if err := p.alive(); err != nil {
		return err
	}
	return p.box.fs.write(p.cred(), p.path(name), data, fumehood.WriteOptions{Mode: perm}, nil)
}

// AppendFile appends to a regular file, made with mode 0644 if need be.
func (p *Proc) AppendFile(name string, data []byte) error {
	if err := p.alive(); err != nil {
		return err
	}
	return p.box.fs.appendTo(p.cred(), p.path(name), data)
}

// Stat describes a file, without following a link that it names.
func (p *Proc) Stat(name string) (fumehood.FileInfo, error) {
	return p.box.fs.stat(p.cred(), p.path(name), false)
}

// Symlink makes a link to target.
func (p *Proc) Symlink(target, name string) error {
	return p.box.fs.symlink(p.cred(), target, p.path(name))
}

// Special makes a "fifo", a "socket" or a "device", which nothing can open.
func (p *Proc) Special(kind, name string) error {
	return p.box.fs.special(p.cred(), p.path(name), kind)
}

// Chmod sets a file's permission bits.
func (p *Proc) Chmod(name string, perm fs.FileMode) error {
	return p.box.fs.setMode(p.cred(), p.path(name), perm.Perm())
}
