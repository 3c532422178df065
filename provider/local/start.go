//go:build !linux || (!amd64 && !arm64)

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// commands runs a sandbox's commands as child processes of this process.
type commands struct {
	env map[string]string

	mu       sync.Mutex
	closed   bool
	starting sync.WaitGroup // commands between the check of closed and their entry in running
	running  map[*process]struct{}
}

// newCommands returns the commands of a sandbox. env is their environment.
func (p *Provider) newCommands(_ context.Context, _ string, env map[string]string) (*commands, error) {
	return &commands{env: env, running: map[*process]struct{}{}}, nil
}

// start starts a process in its own process group, or in its own session if it has a terminal.
func (c *commands) start(_ context.Context, cmd fumehood.Cmd, _ bool, out provider.Sink) (provider.ProcessBackend, error) {
	if cmd.Rlimits != (fumehood.Rlimits{}) || cmd.CPUTime != 0 {
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("the local provider has no limits for one command on this system"),
			Hint: "run it without limits",
		}
	}
	if err := enterable(cmd.Dir); err != nil {
		return nil, err
	}
	env := maps.Clone(c.env)
	maps.Copy(env, cmd.Env)
	program, err := find(cmd.Args[0], cmd.Dir, env["PATH"])
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, classError(fumehood.ErrUnavailable, "the sandbox is closed")
	}
	c.starting.Add(1)
	c.mu.Unlock()
	defer c.starting.Done()

	p := &process{
		commands: c, cmd: &exec.Cmd{Path: program, Args: cmd.Args, Dir: cmd.Dir, Env: environ(env)},
		out: out, tty: cmd.TTY, waited: make(chan struct{}), drained: make(chan struct{}),
	}
	if cmd.TTY {
		err = p.startTTY(cmd.Rows, cmd.Cols)
	} else {
		err = p.startPipes()
	}
	if err != nil {
		return nil, startError(err, program, cmd.Dir)
	}
	c.mu.Lock()
	c.running[p] = struct{}{}
	c.mu.Unlock()
	return p, nil
}

// endWithin bounds the wait for the end of killed processes.
const endWithin = 10 * time.Second

// close kills the running commands, and waits for their end. It may be called again.
func (c *commands) close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.starting.Wait()
	deadline := time.NewTimer(endWithin)
	defer deadline.Stop()
	for _, p := range c.members() {
		p.kill()
		select {
		case <-p.waited:
		case <-deadline.C:
			return fmt.Errorf("command %d still runs after SIGKILL", p.cmd.Process.Pid)
		}
	}
	return nil
}

func (c *commands) members() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.running))
}

// enterable checks the working directory. The kernel's error for a failed start does not distinguish a missing
// directory from a missing program.
func enterable(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrDirNotFound, Err: err}
	}
	if !info.IsDir() {
		return classError(fumehood.ErrDirNotFound, "%s: not a directory", dir)
	}
	return nil
}

// find returns the path of the program. A name with a slash is returned as it is. Any other name is searched in the
// directories of search, a PATH.
func find(name, dir, search string) (string, error) {
	if strings.ContainsAny(name, `/`+string(filepath.Separator)) {
		return name, nil // the kernel's error is specific enough
	}
	var denied error
	dirs := filepath.SplitList(search)
	if search == "" {
		dirs = []string{""} // dir, as an empty element means it
	}
	for _, d := range dirs {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		file := filepath.Join(d, name)
		if _, err := os.Stat(file); err != nil {
			continue // also if d cannot be entered, since its content is unknown then
		}
		err := runnable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", &fumehood.Error{Class: fumehood.ErrNotExecutable, Err: denied}
	}
	return "", classError(fumehood.ErrProgramNotFound, "%s: not in PATH", name)
}

// startError assigns a class to the error of a failed start, by errno.
func startError(err error, program, dir string) error {
	var classedAlready *fumehood.Error
	if errors.As(err, &classedAlready) {
		return err
	}
	if !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	cause := err
	var errno syscall.Errno
	if errors.As(err, &errno) {
		cause = fmt.Errorf("%s: %w", program, errno)
	}
	class := fumehood.ErrInfrastructure // no more processes, no more file descriptors
	switch {
	case errors.Is(enterable(dir), fumehood.ErrDirNotFound): // it existed a moment ago
		class = fumehood.ErrDirNotFound
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		class = fumehood.ErrProgramNotFound
		if _, statErr := os.Stat(program); statErr == nil {
			class, cause = fumehood.ErrNotExecutable, fmt.Errorf("%s: interpreter not found", program)
		}
	case errors.Is(err, fs.ErrPermission):
		class = fumehood.ErrNotExecutable
		if unenterable(dir) {
			class, cause = fumehood.ErrDirNotFound, fmt.Errorf("%s: %w", dir, errno)
		}
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ETXTBSY):
		class = fumehood.ErrNotExecutable
	case errors.Is(err, syscall.E2BIG):
		class, cause = fumehood.ErrNotStarted, fmt.Errorf("the arguments and the environment are too long for this system: %w", errno)
	}
	return &fumehood.Error{Class: class, Err: cause}
}
