package setup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EnterUser is like Enter, for a sandbox in a user namespace of its own. Only a process with a single thread can join
// one, which a Go program never is. So a fork of this process does it, by system calls alone, and starts the program.
// The fork has no rights outside of the sandbox from then on.
func EnterUser() (int, error) {
	const all = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
		unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	return startIn(GuestDir+"/"+Guest, "join", all, 0)
}

// Share starts the first process of another sandbox, the guest's program in the mode "setup". Its user and network
// namespaces are those of the sandbox whose first process has the pidfd in descriptor 3; it makes the others. Share sends
// a pidfd of it to standard output, with its ID as 4 bytes, big endian. The rest is as of EnterUser.
func Share() (int, error) {
	const own = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	return startIn("/proc/self/exe", "setup", unix.CLONE_NEWUSER|unix.CLONE_NEWNET, own)
}

// startIn starts a program in a mode, in joined namespaces of the sandbox and in new ones, and waits for it.
func startIn(path, mode string, joined, made uintptr) (int, error) {
	unix.CloseOnExec(pidfd)
	if err := closeInherited(pidfd); err != nil {
		return 0, err
	}
	if err := ShareMemory("self"); err != nil { // the program may not do it for itself
		return 0, err
	}
	args, err := syscall.SlicePtrFromStrings([]string{GuestDir + "/" + Guest, mode})
	if err != nil {
		return 0, err
	}
	file, err := syscall.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	reports, writer, err := os.Pipe() // closed when the program starts
	if err != nil {
		return 0, err
	}
	defer reports.Close()
	program := &program{path: file, args: args, env: []*byte{nil}, joined: joined, made: made, reports: writer.Fd()}
	runtime.LockOSThread() // the blocked signals are the thread's
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	all := unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, os.NewSyscallError("rt_sigprocmask", err)
	}
	fork, errno := program.forkInto(pidfd)
	runtime.KeepAlive(program)
	_ = writer.Close() // the forks have it
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return 0, os.NewSyscallError("rt_sigprocmask", err)
	}
	if errno != 0 {
		return 0, os.NewSyscallError("clone", errno)
	}
	pid, err := readPID(reports)
	if err == nil && made != 0 {
		err = sendPidfd(pid)
	}
	if err := errors.Join(err, closeStandard()); err != nil {
		return 0, err
	}
	// The fork ends when it has started the program, which is a child of this process too.
	code, err := wait(int(fork)) //nolint:gosec // a process ID
	if err == nil && code != 0 {
		err = fmt.Errorf("join the sandbox: exit code %d", code)
	}
	if err != nil {
		return 0, err
	}
	return wait(pid)
}

// readPID reads what the forks report, and returns the ID of the program's process.
func readPID(reports io.Reader) (pid int, err error) {
	for {
		var r report
		switch rerr := binary.Read(reports, binary.NativeEndian, &r); {
		case rerr != nil && pid == 0 && err == nil:
			return 0, fmt.Errorf("join the sandbox: %w", rerr)
		case rerr != nil:
			return pid, err
		case r.Step == stepStarted:
			pid = int(r.Value)
		default:
			err = os.NewSyscallError(steps[r.Step], syscall.Errno(r.Value))
		}
	}
}

// sendPidfd sends a pidfd of a child, which has not been waited for, to the host.
func sendPidfd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	id := binary.BigEndian.AppendUint32(nil, uint32(pid)) //nolint:gosec // a process ID
	return os.NewSyscallError("sendmsg", unix.Sendmsg(1, id, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL))
}

// program is a program in the form of execve(2).
type program struct {
	path         *byte
	args, env    []*byte
	signals      unix.Sigset_t // that it blocks: none
	joined, made uintptr       // namespaces, as flags of clone(2)
	reports      uintptr       // a descriptor for report
	report       report
}

// report is what a fork has done: a step with an error number, or stepStarted with a process ID.
type report struct{ Step, Value uint32 }

// steps are the system calls that may fail.
var steps = [...]string{stepJoin: "setns", stepFork: "clone", stepGroup: "setresgid", stepUser: "setresuid", stepProgram: "execve"}

const (
	stepJoin = iota
	stepFork
	stepGroup
	stepUser
	stepProgram
	stepStarted
)

// forkInto starts a process that joins the namespaces of the process with a pidfd, and starts the program there as a
// child of this process. What it does is written to p.reports. All signals are blocked.
//
// The fork has only this thread. It must not allocate, grow its stack, or call anything but the kernel.
//
//go:nosplit
//go:norace
func (p *program) forkInto(pidfd uintptr) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETNS, pidfd, p.joined, 0); errno != 0 {
		p.fail(stepJoin, errno)
	}
	// Only children get into the PID namespace.
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_PARENT|p.made|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		p.fail(stepFork, errno)
	}
	if pid != 0 {
		p.say(stepStarted, uint32(pid)) //nolint:gosec // a process ID
		exit(0)
	}
	// A user namespace with one user denies this.
	_, _, _ = syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0); errno != 0 {
		p.fail(stepGroup, errno)
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); errno != 0 {
		p.fail(stepUser, errno)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&p.signals)), 0, 8, 0, 0)
	_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(&p.args[0])), uintptr(unsafe.Pointer(&p.env[0])))
	p.fail(stepProgram, errno)
	return 0, 0
}

// fail writes which step failed, and ends the process.
//
//go:nosplit
//go:norace
func (p *program) fail(step uint32, errno syscall.Errno) {
	p.say(step, uint32(errno)) //nolint:gosec // a small number
	exit(1)
}

// say writes a report.
//
//go:nosplit
//go:norace
func (p *program) say(step, value uint32) {
	p.report.Step, p.report.Value = step, value
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, p.reports, uintptr(unsafe.Pointer(&p.report)), unsafe.Sizeof(p.report))
}

// exit ends a process that has only one thread.
//
//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// closeStandard closes the standard input and output: a child that has them is alone with the host, and its end must end
// the connection.
func closeStandard() error {
	for fd := range 2 {
		if err := unix.Close(fd); err != nil {
			return os.NewSyscallError("close", err)
		}
	}
	return nil
}

// wait waits for the end of a child, and returns its exit code, or 128 and the number of the signal that ended it.
func wait(child int) (int, error) { return waitAmong(child, child) }

// waitAmong is wait for a process that may become a child only later: with -1 it waits for all children until then.
func waitAmong(children, child int) (int, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(children, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR), err == nil && pid != child:
		case err != nil:
			return 0, os.NewSyscallError("wait4", err)
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}
