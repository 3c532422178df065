package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/provider"
)

// Engine has containers. Its methods may be called by multiple goroutines concurrently.
type Engine struct {
	dir   string // has a folder for each container
	guest string // the path of the guest's program

	mu         sync.Mutex
	containers map[string]*container // by the sandbox's name
}

// container is the only container of a sandbox.
type container struct {
	name, folder string
	spec         fumehood.Spec
	info         fumehood.ServiceInfo
	created      time.Time
	guest        string                  // the path of the guest's program
	main         atomic.Pointer[process] // its first process; nil before it is started
	marks        box.Marks               // not changed, but replaced; see Engine.list
}

// NewEngine returns an engine without containers. Its files are in dir.
func NewEngine(ctx context.Context, dir string) (*Engine, error) {
	b, err := guestbin.For(ctx, runtime.GOARCH, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	program, err := b.Program()
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir, guest: filepath.Join(dir, "guest"), containers: map[string]*container{}}
	return e, files.WriteProgram(e.guest, program, 0o755)
}

// create creates a container, which is not started yet. A name in use is an ErrConfig.
func (e *Engine) create(spec fumehood.Spec, marks box.Marks) (*container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.containers[spec.Name] != nil {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("sandbox %q already exists", spec.Name)}
	}
	c := &container{name: spec.Name, folder: filepath.Join(e.dir, "boxes", spec.Name), spec: spec, created: time.Now(), guest: e.guest, marks: marks}
	c.info = fumehood.ServiceInfo{Name: "default", Image: spec.Image, Dir: spec.Dir}
	if spec.Dir == "" {
		c.info.Dir = filepath.Join(c.folder, "work")
	}
	e.containers[c.name] = c // what the next step leaves is removed with it
	return c, os.MkdirAll(filepath.Join(c.folder, "work"), 0o755)
}

// remove kills everything in a container and removes it. It may be called again.
func (e *Engine) remove(c *container) error {
	c.kill()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.containers[c.name] != c {
		return nil // another process has removed it
	}
	if err := os.RemoveAll(c.folder); err != nil {
		return err
	}
	delete(e.containers, c.name)
	return nil
}

// mark sets a mark of a container.
func (e *Engine) mark(c *container, name, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.marks = maps.Clone(c.marks)
	c.marks[name] = value
}

// listed is a container with its marks at one time.
type listed struct {
	*container
	marks box.Marks
}

// list returns the containers by name: all, or that of one name.
func (e *Engine) list(name string) (all []listed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		if name == "" || name == c.name {
			all = append(all, listed{c, c.marks})
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	return all
}

// start starts the first process: a guest in a new PID namespace, with its own /proc.
func (c *container) start() error {
	cmd := exec.Command("sh", "-c", `mount -t proc proc /proc && exec "$0" "$@"`, c.guest, "serve", "--no-cgroup") //nolint:noctx // it outlives the call
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Setsid: true,
		Pdeathsig: syscall.SIGKILL, // the state ends with this process
	}
	main, err := c.run(cmd)
	c.main.Store(main)
	return err
}

// kill kills the first process, and waits until all others have ended too.
func (c *container) kill() {
	if main := c.main.Load(); main != nil {
		_ = main.cmd.Process.Kill() // may have ended
		<-main.ended
	}
}

// exec starts the guest's program in the container. An empty user is root.
func (c *container) exec(name string, args ...string) (*process, error) {
	uid, gid, err := lookUp(name)
	if err != nil {
		return nil, err
	}
	main := c.main.Load()
	select {
	case <-main.ended: // its number may be another process's by now
		return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the container has ended")}
	default:
	}
	in := []string{"--target", strconv.Itoa(main.cmd.Process.Pid), "--pid", "--mount", "--setuid", uid, "--setgid", gid, c.guest}
	return c.run(exec.Command("nsenter", append(in, args...)...)) //nolint:noctx // it outlives the call
}

// lookUp returns the ids of a user, who is one of this machine's: "name" or "id", optionally with a numeric ":group".
func lookUp(name string) (uid, gid string, err error) {
	name, gid, _ = strings.Cut(cmp.Or(name, "0"), ":")
	known, err := user.LookupId(name)
	if _, number := strconv.ParseUint(name, 10, 31); number != nil {
		known, err = user.Lookup(name)
	} else if err != nil { // it need not have a name
		known, err = &user.User{Uid: name, Gid: "0"}, nil
	}
	if err != nil {
		return "", "", &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: err}
	}
	return known.Uid, cmp.Or(gid, known.Gid), nil
}

// run starts a program with the container's environment.
func (c *container) run(cmd *exec.Cmd) (*process, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), stdin.Close())
	}
	p := &process{Reader: stdout, Writer: stdin, ends: []io.Closer{stdin, stdout}, cmd: cmd, stderr: ring.NewTail(4 << 10), ended: make(chan struct{})}
	env := map[string]string{"PATH": os.Getenv("PATH"), "HOME": c.info.Dir}
	maps.Copy(env, c.spec.Env)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", provider.Environ(&fumehood.Cmd{Env: env}), in, out, p.stderr
	if err := errors.Join(cmd.Start(), in.Close(), out.Close()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // ProcessState has its end
	}()
	return p, nil
}

// process is a program in a container, or what has started it there, with the connection to it.
type process struct {
	io.Reader
	io.Writer
	ends   []io.Closer
	cmd    *exec.Cmd
	stderr *ring.Tail
	ended  chan struct{}
}

var _ box.Exec = (*process)(nil)

// Close closes the connection.
func (p *process) Close() error { return errors.Join(p.ends[0].Close(), p.ends[1].Close()) }

// endWithin bounds the wait for a guest whose connection is closed.
const endWithin = time.Second

// Complaint returns the end of what it wrote to standard error, when it has ended.
func (p *process) Complaint() string {
	select {
	case <-p.ended:
	case <-time.After(endWithin):
	}
	text, _ := p.stderr.Bytes()
	return string(text)
}

// Wait waits for its end.
func (p *process) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-p.ended:
		return provider.Exit{Outcome: fumehood.Exited, Code: p.cmd.ProcessState.ExitCode()}, nil
	case <-ctx.Done():
		return provider.Exit{}, ctx.Err()
	}
}

// AwaitEnd waits at most within for its exit code, -1 if it still runs.
func (p *process) AwaitEnd(ctx context.Context, within time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil {
		return -1, nil //nolint:nilerr // it runs
	}
	return exit.Code, nil
}

// Stopped reports whether it is stopped: nsenter stops itself with the program that it has started.
func (p *process) Stopped(context.Context) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	return strings.Contains(string(stat), ") T "), err
}
