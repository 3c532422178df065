//go:build amd64 || arm64

package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// process is a guest that this process started, with the connection to it, or the first process of a sandbox that
// another process started, without.
type process struct {
	*wire.Socket // our end of the connection
	pid          int
	pidfd        *os.File        // nil if another process started it, and has ended
	child        int             // the process of ours that pid is, or that has started it and ends with it; 0 if another process did
	status       unix.WaitStatus // of child, when it has ended
	stderr       *ring.Tail
	ended        chan struct{} // closed when the process has ended
	copied       bool          // it has copied the image's layers
	undivided    bool          // see setup.Reply
	disk         *os.File      // the mount of the writable layer that it needs, if that is not in memory
	tasks        []*os.File    // see setup.Run
	volumes      []*os.File    // mounts of volumes that it needs, or has made for other services
}

// complaint is how many bytes of a guest's standard error output are kept.
const complaint = 4 << 10

// namespaces are the namespaces of a sandbox. With version 2 of control groups it makes that of control groups once more.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// modeRuntime is the mode of a guest that lets an OCI runtime start another one.
const modeRuntime = "runtime"

// launch starts the guest's program in a mode and in a control group. Its standard input and output are a socket. It
// has no variables of this process and no descriptors but more, and later at most the capabilities in rights. before is called as by startIn; it may be nil.
func launch(program string, group cgroup, rights uint64, attributes *syscall.SysProcAttr, mode string, before func() error, more ...*os.File) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	guestEnd := os.NewFile(uintptr(pair[1]), "guest")
	defer guestEnd.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // so that Close unblocks a Read
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	hostEnd, err := wire.NewSocket(pair[0])
	if err != nil {
		return nil, err
	}
	complaints, stderr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, hostEnd.Close())
	}
	defer stderr.Close()
	attributes.Setsid = true // so that it does not receive the terminal's signals
	pidfd := -1
	attributes.PidFD = &pidfd
	cmd := &exec.Cmd{
		Path: program, Args: []string{setup.GuestDir + "/" + setup.Guest, mode}, Env: []string{"GOMAXPROCS=1"}, Dir: "/",
		Stdin: guestEnd, Stdout: guestEnd, Stderr: stderr, ExtraFiles: more, SysProcAttr: attributes,
	}
	if err := startIn(group, cmd, rights, before); err != nil {
		if cmd.Process != nil { // it started, but its thread could not leave the control group
			err = errors.Join(err, cmd.Process.Kill(), cmd.Wait(), unix.Close(pidfd))
		}
		return nil, errors.Join(err, complaints.Close(), hostEnd.Close())
	}
	p := &process{Socket: hostEnd, pid: cmd.Process.Pid, child: cmd.Process.Pid, stderr: ring.NewTail(complaint), ended: make(chan struct{})}
	_ = cmd.Process.Release() // it would hold another descriptor of the process, for each sandbox
	p.pidfd = newPidfd(pidfd)
	go p.await(complaints, attributes.Cloneflags != 0) // the first process is signalled until it is known to have ended
	return p, nil
}

// await waits until a child has ended, and closes its pidfd then unless it is kept.
func (p *process) await(complaints *os.File, kept bool) {
	defer close(p.ended)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(p.stderr, complaints)
	}()
	awaitEnd(p.pidfd)
	for {
		if _, err := unix.Wait4(p.child, &p.status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = complaints.SetReadDeadline(time.Now().Add(time.Second)) // descendants that survive may keep it open
	<-read
	_ = complaints.Close() // nothing was written
	if !kept {
		_ = p.pidfd.Close() // nothing was written
	}
}

// how returns how an ended child ended.
func (p *process) how() string {
	if p.status.Signaled() {
		return "signal: " + p.status.Signal().String()
	}
	return "exit status " + strconv.Itoa(p.status.ExitStatus())
}

// allRights are all capabilities.
const allRights = ^uint64(0)

// startIn starts a command in a control group, without what setup.ConfineThread gives up, unless it may have all
// capabilities. It does so in a thread of its own, to which all of that belongs. Before that, the thread calls before,
// unless it is nil.
func startIn(group cgroup, cmd *exec.Cmd, rights uint64, before func() error) error {
	return setup.InThread(func() error {
		if err := setup.ResetThread(); err != nil {
			return err
		}
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		leave, err := group.enter(cmd.SysProcAttr)
		if err != nil {
			return err
		}
		if rights != allRights {
			err = setup.ConfineThread(rights)
		}
		if err == nil && cmd.SysProcAttr.UidMappings != nil {
			err = reachProgram(cmd)
		}
		if err == nil {
			err = cmd.Start()
		}
		return errors.Join(err, leave())
	})
}

// launchShared is launch for the first process of a service, in the mode "setup", whose user and network namespaces are those
// of another service's first process. What this process starts waits for it, and exits with its code.
func launchShared(ctx context.Context, program string, group cgroup, rights uint64, first *process) (*process, error) {
	starter, err := launch(program, group, rights, &syscall.SysProcAttr{}, "share", nil, first.pidfd)
	if err != nil {
		return nil, err
	}
	starter.AcceptFiles()
	defer context.AfterFunc(ctx, func() { starter.signal() })() // it has ended already, or starts nothing more
	var id [4]byte
	err = starter.SetDeadline(time.Now().Add(startWithin))
	if err == nil {
		_, err = io.ReadFull(starter, id[:])
	}
	fd := starter.TakeFile()
	if err == nil && fd < 0 {
		err = errors.New("it has sent no pidfd")
	}
	if err = errors.Join(err, starter.SetDeadline(time.Time{})); err != nil {
		if starter.endsWithin(time.Second) { // by itself, with a reason
			err = fmt.Errorf("%w%s", err, lastOutput(starter.stderr))
		}
		if fd >= 0 {
			_ = unix.Close(fd) // nothing was written
		}
		return nil, errors.Join(err, starter.kill())
	}
	p := &process{
		Socket: starter.Socket, child: starter.child, stderr: starter.stderr, ended: make(chan struct{}),
		pid: int(binary.BigEndian.Uint32(id[:])), pidfd: newPidfd(fd),
	}
	go func() {
		defer close(p.ended)
		<-starter.ended // normally last, but Stop kills it
		p.status = starter.status
		awaitEnd(p.pidfd)
	}()
	return p, nil
}

// configure sends the guest its Config and waits for the answer.
func (p *process) configure(ctx context.Context, c setup.Config) error {
	stop := context.AfterFunc(ctx, func() {
		p.signal()
		_ = p.Close() // a stopped descendant may have the other end
	})
	defer stop()
	var reply setup.Reply
	passing := c.Root != nil && c.Root.Passed
	if passing { // it may not do it for itself
		if err := setup.ShareMemory(strconv.Itoa(p.pid)); err != nil {
			return err
		}
	}
	c.Tasks = len(p.tasks)
	err := setup.Send(p, c)
	if err == nil {
		err = p.sendFiles(p.tasks...)
	}
	if err == nil && c.Root != nil && c.Root.OnDisk {
		err = p.sendFiles(p.disk)
	}
	if err == nil && passing {
		err = p.pass(*c.Root)
	}
	if err == nil {
		err = p.sendFiles(p.volumes...)
	}
	typed, failed := errors.AsType[*fumehood.Error](err)
	if err == nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) { // a guest that fails may have answered already
		err = setup.Receive(p, &reply)
	}
	switch {
	case err == nil && reply.Step == "":
		p.copied, p.undivided = reply.Copied, reply.Undivided
		return p.receiveVolumes(c)
	case ctx.Err() != nil:
		return ctx.Err()
	case failed:
		return typed
	case err != nil && p.endsWithin(time.Second): // by itself, with a reason
		return fmt.Errorf("the guest ended: %s%s", p.how(), lastOutput(p.stderr))
	case err != nil:
		p.signal()
		<-p.ended
		return fmt.Errorf("answer of the guest: %w%s", err, lastOutput(p.stderr))
	}
	return &fumehood.Error{Class: classOf(reply.Fault), Err: fmt.Errorf("%s: %s", reply.Step, reply.Error), Hint: hintOf(reply.Fault)}
}

// sendFiles sends descriptors, each with a byte.
func (p *process) sendFiles(files ...*os.File) error {
	for _, f := range files {
		if err := p.WriteFile([]byte{0}, int(f.Fd())); err != nil { //nolint:gosec // a descriptor
			return err
		}
	}
	return nil
}

// receiveVolumes receives the mounts that a first process has made for other services.
func (p *process) receiveVolumes(c setup.Config) error {
	if c.Root == nil || len(c.Root.Sizes) == 0 {
		return nil
	}
	p.AcceptFiles()
	for range len(c.Root.Shares) - len(c.Root.Volumes) {
		var one [1]byte
		if _, err := io.ReadFull(p, one[:]); err != nil {
			return fmt.Errorf("receive volumes: %w", err)
		}
		fd := p.TakeFile()
		if fd < 0 {
			return errors.New("receive volumes: no descriptor")
		}
		p.volumes = append(p.volumes, os.NewFile(uintptr(fd), "volume")) //nolint:gosec // not negative
	}
	return nil
}

func classOf(f setup.Fault) error {
	switch f {
	case setup.FaultUser:
		return fumehood.ErrUserNotFound
	case setup.FaultImage, setup.FaultMount:
		return fumehood.ErrConfig
	case setup.FaultIDs, setup.FaultFill:
		return fumehood.ErrUnsupported
	case setup.FaultDenied:
	}
	return fumehood.ErrInfrastructure
}

var hints = map[setup.Fault]string{
	setup.FaultUser:  "name a user of the image, or a number",
	setup.FaultImage: "use another image",
	setup.FaultMount: "mount another path",
	setup.FaultFill:  "use the docker provider",
	setup.FaultIDs:   "add subordinate ids (`fumehood doctor`), run as root, or run the commands as root in the sandbox",
}

func hintOf(f setup.Fault) string {
	if f == setup.FaultDenied {
		return deniedHint()
	}
	return hints[f]
}

// lastOutput returns what a guest wrote to standard error, for an error.
func lastOutput(tail *ring.Tail) string {
	kept, _ := tail.Bytes()
	text := strings.TrimSpace(fumehood.Output{Bytes: kept}.Text())
	if text == "" {
		return ""
	}
	return "; its standard error: " + text
}

// Complaint returns the end of what the guest wrote to standard error.
func (p *process) Complaint() string {
	kept, _ := p.stderr.Bytes()
	return string(kept)
}

// over reports whether the process has ended.
func (p *process) over() bool {
	if p.child == 0 {
		return p.pidfd == nil || hasEnded(p.pidfd)
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// endsWithin waits for the process's end, and reports whether it has ended.
func (p *process) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
		return false
	}
}

// signal sends SIGKILL to the process, which may have ended.
func (p *process) signal() {
	_ = wire.Control(p.pidfd, func(fd int) error { return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) })
}

// kill kills the process and waits for its end, and for that of everything in its PID namespace.
func (p *process) kill() error {
	p.signal()
	if !p.endsWithin(endWithin) {
		return fmt.Errorf("process %d has not ended %v after SIGKILL", p.pid, endWithin)
	}
	for _, f := range append(p.volumes, p.pidfd) {
		_ = f.Close() // nothing was written; there may be none
	}
	_ = p.Close() // the client may have closed it
	return nil
}

// fate returns how an ended process ended, for an error: nothing if another process started it. It also reports whether
// SIGKILL may have ended it.
func (p *process) fate() (killed bool, how string) {
	if p.child == 0 {
		return true, ""
	}
	killed = p.status.Signaled() && p.status.Signal() == unix.SIGKILL || p.status.ExitStatus() == 128+int(unix.SIGKILL) // the latter of launchShared, and of a runtime
	return killed, fmt.Sprintf(": its first process: %s%s", p.how(), lastOutput(p.stderr))
}

// endWithin bounds the wait for the end of a killed process.
const endWithin = 10 * time.Second

// joined is a guest of another user, which this process started in a sandbox. Its process waits for it.
type joined struct{ *process }

// exitWithin bounds the wait for a guest whose connection is closed. A command of root may have stopped it.
const exitWithin = time.Second

// Complaint waits until the guest exits. If a command has stopped it, it stays until the sandbox ends.
func (j joined) Complaint() string {
	t := time.NewTimer(exitWithin)
	defer t.Stop()
	select {
	case <-j.ended:
	case <-t.C:
		_ = j.kill() // its error is that it does not end, which Close of the sandbox reports
	}
	return j.process.Complaint()
}

// child returns the number of the guest itself, which the process that entered the sandbox has started.
func (j joined) child() (int, error) {
	pid := j.pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(children), " ")
	return strconv.Atoi(first)
}

// Wait waits for the guest's exit.
func (j joined) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-j.ended:
		return provider.Exit{Outcome: fumehood.Exited, Code: j.status.ExitStatus()}, nil
	case <-ctx.Done():
		return provider.Exit{}, ctx.Err()
	}
}

// AwaitEnd waits at most within for the guest's exit code, -1 if it still runs.
func (j joined) AwaitEnd(ctx context.Context, within time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	exit, err := j.Wait(ctx)
	if err != nil {
		return -1, nil //nolint:nilerr // it runs
	}
	return exit.Code, nil
}

// Stopped reports whether the guest is stopped.
func (j joined) Stopped(context.Context) (bool, error) {
	child, err := j.child()
	if err != nil {
		return false, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
	if err != nil {
		return false, err
	}
	_, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t"), nil
}
