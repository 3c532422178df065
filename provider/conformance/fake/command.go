package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// programMark begins the content of a program's file; the rest is the program's path.
const programMark = "#!fumehood-fake "

// Start runs the program that cmd names in goroutines.
func (b *box) Start(ctx context.Context, cmd fumehood.Cmd, _ bool, out fumehood.Sink) (fumehood.ProcessBackend, error) {
	if cmd.TTY {
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the fake provider has no terminals"), Hint: "leave out TTY"}
	}
	if cmd.Rlimits != (fumehood.Rlimits{}) {
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the fake provider's programs have no limits"), Hint: "leave out Rlimits"}
	}
	who := b.cred
	if cmd.User != "" {
		var err error
		if who, err = b.lookUp(cmd.User); err != nil {
			return nil, err
		}
	}
	dir, err := b.enter(who, cmd.Dir)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(b.env)
	maps.Copy(env, cmd.Env)
	program, err := b.find(who, cmd.Args[0], dir, env["PATH"])
	if err != nil {
		return nil, err
	}
	c := &command{box: b, out: out, killed: make(chan struct{})}
	stdin, input := io.Pipe()
	c.stdin = input
	p := &Proc{
		Args: cmd.Args, Env: environ(env), Dir: dir, UID: who.uid, GID: who.gid,
		Stdin: stdin, box: b, command: c, program: program, input: stdin,
	}
	c.leader = p
	// The command outlives ctx, which bounds its start only.
	if err := b.run(context.WithoutCancel(ctx), p); err != nil {
		return nil, err
	}
	return c, nil
}

func environ(env map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// enter checks that a command may run in dir, and returns it clean and without links, as getcwd would.
func (b *box) enter(who cred, dir string) (string, error) {
	b.fs.mu.Lock()
	defer b.fs.mu.Unlock()
	n, err := b.fs.existing(who, dir, true)
	if err != nil {
		return "", classed(fumehood.ErrDirNotFound, "%s: %v", dir, err)
	}
	if !n.mode.IsDir() || !n.allows(who, mayEnter) {
		return "", classed(fumehood.ErrDirNotFound, "%s: not a directory that the user may enter", dir)
	}
	return path.Clean(dir), nil
}

// find returns the program that name stands for.
func (b *box) find(who cred, name, dir, search string) (Program, error) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = dir + "/" + name
		}
		return b.load(who, name)
	}
	var denied error
	for d := range strings.SplitSeq(search, ":") {
		program, err := b.load(who, d+"/"+name)
		if err == nil {
			return program, nil
		}
		if errors.Is(fumehood.ClassOf(err), fumehood.ErrNotExecutable) && !errors.Is(err, fumehood.ErrPermission) {
			denied = err // the file is there, in a directory that may be entered
		}
	}
	if denied != nil {
		return nil, denied
	}
	return nil, classed(fumehood.ErrProgramNotFound, "%s: not in PATH", name)
}

func (b *box) load(who cred, file string) (Program, error) {
	b.fs.mu.Lock()
	defer b.fs.mu.Unlock()
	n, err := b.fs.existing(who, file, true)
	switch class := fumehood.ClassOf(err); {
	case errors.Is(class, fumehood.ErrPermission):
		return nil, classed(fumehood.ErrNotExecutable, "%s: %w", file, err)
	case err != nil:
		return nil, classed(fumehood.ErrProgramNotFound, "%s: %v", file, err)
	case !n.mode.IsRegular() || !n.allows(who, mayEnter):
		return nil, classed(fumehood.ErrNotExecutable, "%s: permission denied", file)
	}
	mark, ok := strings.CutPrefix(string(n.data), programMark)
	program := b.programs[mark]
	if !ok || program == nil {
		return nil, classed(fumehood.ErrNotExecutable, "%s: no program of the fake provider", file)
	}
	return program, nil
}

// command is one running command: its leader and what that spawned.
type command struct {
	box    *box
	stdin  *io.PipeWriter
	leader *Proc
	killed chan struct{} // closed when the leader is not waited for any longer

	emitting sync.Mutex // held while out runs
	out      fumehood.Sink
	over     bool // the command has ended: what is written now goes nowhere

	mu     sync.Mutex
	procs  []*Proc
	gaveUp bool
}

// emit passes output on.
func (c *command) emit(s fumehood.Stream, p []byte) {
	c.emitting.Lock()
	defer c.emitting.Unlock()
	if !c.over {
		c.out(s, p)
	}
}

// Wait returns when the leader has ended, or does not end though it was killed.
func (c *command) Wait(context.Context) (fumehood.Exit, error) {
	select {
	case <-c.leader.done:
	case <-c.killed:
	}
	c.emitting.Lock()
	c.over = true
	c.emitting.Unlock()
	return c.leader.exit(), nil
}

func (c *command) Write(p []byte) (int, error) { return c.stdin.Write(p) }

func (c *command) CloseStdin() error { return c.stdin.Close() }

func (c *command) members() []*Proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.procs)
}

// Signal reaches every goroutine of the command, as if they were a process group.
func (c *command) Signal(_ context.Context, sig int) error {
	for _, p := range c.members() {
		p.signal(sig)
	}
	return nil
}

// Kill cancels every goroutine of the command and waits a second for them.
func (c *command) Kill(context.Context) bool {
	for _, p := range c.members() {
		p.signal(sigKill)
	}
	complete := joined(c.members())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !complete && !c.gaveUp {
		c.gaveUp = true
		close(c.killed)
	}
	return complete
}

func (c *command) Resize(context.Context, uint16, uint16) error {
	return classed(fumehood.ErrUnsupported, "the fake provider has no terminals")
}

// patience is how long a goroutine may take to return after the end of its context.
const patience = time.Second

// joined waits for goroutines that were told to end, and reports whether all did.
func joined(procs []*Proc) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for _, p := range procs {
		select {
		case <-p.done:
		case <-deadline.C:
			return false
		}
	}
	return true
}
