//go:build amd64 || arm64

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// commands runs a sandbox's commands through a guest. The guest is a child process that supervises them. So the
// program that uses this package is never the commands' subreaper, and the guest never reaps that program's own
// children.
type commands struct {
	program string // path of the guest's program
	guest   *host.Guest
	process *os.Process
	stderr  *ring.Tail

	ended chan struct{} // closed when the process has ended and err is set
	err   error         // how it ended; nil if it exited by itself and left no processes
}

const (
	// readyWithin bounds the wait for the guest's first answer, which normally takes some milliseconds.
	readyWithin = 30 * time.Second
	// endWithin bounds the wait for the end of a guest. The guest itself gives up after 10 s.
	endWithin = 15 * time.Second
	// complaint is how many bytes of a guest's standard error output are kept.
	complaint = 4 << 10
)

// newCommands starts the guest from a file in folder, which must not be on a file system mounted noexec. A guest that
// runs from memory could not start itself again as a worker, since only root's non-dumpable processes may open their
// own /proc/self. env is the commands' environment.
func (p *Provider) newCommands(ctx context.Context, folder string, env map[string]string) (*commands, error) {
	c := &commands{program: filepath.Join(folder, "fumehood-guest"), stderr: ring.NewTail(complaint), ended: make(chan struct{})}
	if err := p.install(ctx, c.program); err != nil {
		return nil, err
	}
	conn, err := c.run(environ(env))
	if errors.Is(err, os.ErrPermission) {
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("cannot execute %s: %w", c.program, err),
			Hint: "use a file system that is not mounted noexec (XDG_STATE_HOME)",
		}
	}
	if err != nil {
		return nil, err
	}
	c.guest = host.New(conn)
	answer, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := c.guest.Ready(answer); err != nil {
		if answer.Err() != nil && ctx.Err() == nil {
			err = classError(fumehood.ErrInfrastructure, "the guest has not answered within %v", readyWithin)
		}
		_ = c.close() // no command runs yet, so its error adds nothing
		return nil, c.explain(err)
	}
	return c, nil
}

// install writes the guest's program.
func (p *Provider) install(ctx context.Context, file string) error {
	program, err := p.guestProgram(ctx)
	if err != nil {
		return err
	}
	return files.WriteProgram(file, program, 0o700)
}

// guestProgram returns the guest for this architecture. It is unpacked only once.
func (p *Provider) guestProgram(ctx context.Context) ([]byte, error) {
	p.guestMu.Lock()
	defer p.guestMu.Unlock()
	if p.guest == nil {
		b, err := guestbin.For(ctx, runtime.GOARCH, p.log)
		if err != nil {
			return nil, err
		}
		if p.guest, err = b.Program(); err != nil {
			return nil, err
		}
	}
	return p.guest, nil
}

// run starts the guest and returns our end of its connection.
func (c *commands) run(env []string) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	guestEnd := os.NewFile(uintptr(pair[1]), "guest")
	defer guestEnd.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // so that Close unblocks a Read
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	hostEnd := os.NewFile(uintptr(pair[0]), "guest")
	cmd := &exec.Cmd{
		Path: c.program, Args: []string{c.program, "serve", "--no-cgroup"}, Env: env,
		Dir:   "/", // so that no mount is kept busy; each request has its command's directory
		Stdin: guestEnd, Stdout: guestEnd, Stderr: c.stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // so that it does not receive the terminal's signals
	}
	if err := cmd.Start(); err != nil {
		hostEnd.Close()
		return nil, err
	}
	c.process = cmd.Process
	go func() {
		defer close(c.ended)
		// The guest exits with WasStopped if close has continued it.
		if err := cmd.Wait(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != wire.WasStopped {
			c.err = err
		}
	}()
	return hostEnd, nil
}

// start runs a command.
func (c *commands) start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	p, err := c.guest.Exec(ctx, cmd, live, out)
	if err != nil {
		return nil, c.explain(err)
	}
	return p, nil
}

// explainWithin bounds the wait for the end of a guest whose connection has ended.
const explainWithin = time.Second

// explain adds the reason of the guest's end to an error about a lost guest.
func (c *commands) explain(err error) error {
	var lost *fumehood.Error
	if !errors.Is(err, fumehood.ErrUnavailable) || !errors.As(err, &lost) {
		return err
	}
	t := time.NewTimer(explainWithin)
	defer t.Stop()
	select {
	case <-c.ended:
		if c.err != nil {
			return classError(fumehood.ErrUnavailable, "%w; it ended with %s", lost.Err, c.lastWords())
		}
	case <-t.C:
	}
	return err
}

// lastWords returns how a guest that failed has ended, and its error output.
func (c *commands) lastWords() string {
	kept, _ := c.stderr.Bytes()
	text := strings.TrimSpace(fumehood.Output{Bytes: kept}.Text())
	if text == "" {
		return c.err.Error()
	}
	return c.err.Error() + ": " + text
}

// close kills everything that was started, and ends the guest. An error means that processes may still run. close
// may be called again.
func (c *commands) close() error {
	c.guest.Close()                    // the guest reads EOF
	_ = c.process.Signal(unix.SIGCONT) // a command may have stopped it
	t := time.NewTimer(endWithin)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
		_ = c.process.Kill() // its workers read EOF
		<-c.ended
	}
	err := os.RemoveAll(c.program)
	if c.err != nil {
		err = errors.Join(fmt.Errorf("some of its processes may still run: their supervisor ended with %s", c.lastWords()), err)
	}
	return err
}
