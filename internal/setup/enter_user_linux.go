package setup

import (
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
	unix.CloseOnExec(pidfd)
	if err := closeInherited(pidfd); err != nil {
		return 0, err
	}
	if err := ShareMemory("self"); err != nil { // the program may not do it for itself
		return 0, err
	}
	program, err := newProgram(GuestDir+"/"+Guest, "join")
	if err != nil {
		return 0, err
	}
	failed, failure, err := os.Pipe() // closed when the program starts
	if err != nil {
		return 0, err
	}
	defer failed.Close()
	program.failure = failure.Fd()
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
	_ = failure.Close() // the forks have it
	if err := errors.Join(unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil), closeStandard()); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, os.NewSyscallError("clone", errno)
	}
	// The fork ends when it has started the program, which is a child of this process too.
	status, err := wait(int(fork)) //nolint:gosec // a process ID
	if err != nil {
		return 0, err
	}
	what := make([]byte, len(program.failed))
	if _, err := io.ReadFull(failed, what); err == nil {
		return 0, os.NewSyscallError(steps[what[0]], syscall.Errno(what[1]))
	}
	if status.ExitStatus() != 0 {
		return 0, fmt.Errorf("join the sandbox: exit code %d", status.ExitStatus())
	}
	status, err = wait(-1)
	if err != nil {
		return 0, err
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// program is a program in the form of execve(2).
type program struct {
	path      *byte
	args, env []*byte
	signals   unix.Sigset_t // that it blocks: none
	failure   uintptr       // a descriptor for failed
	failed    [2]byte       // the step and the error number
}

// steps are the system calls that may fail.
var steps = [...]string{stepJoin: "setns", stepFork: "clone", stepGroup: "setresgid", stepUser: "setresuid", stepProgram: "execve"}

const (
	stepJoin = iota
	stepFork
	stepGroup
	stepUser
	stepProgram
)

func newProgram(path, mode string) (*program, error) {
	args, err := syscall.SlicePtrFromStrings([]string{path, mode})
	if err != nil {
		return nil, err
	}
	return &program{path: args[0], args: args, env: []*byte{nil}}, nil
}

// forkInto starts a process that joins the namespaces of the process with a pidfd, and starts the program there as a
// child of this process. A step that fails is written to p.failure. All signals are blocked.
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
	const all = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
		unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETNS, pidfd, all, 0); errno != 0 {
		p.fail(stepJoin, errno)
	}
	// Only children get into the PID namespace.
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_PARENT|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		p.fail(stepFork, errno)
	}
	if pid != 0 {
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
func (p *program) fail(step byte, errno syscall.Errno) {
	p.failed[0], p.failed[1] = step, byte(errno)
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, p.failure, uintptr(unsafe.Pointer(&p.failed)), uintptr(len(p.failed)))
	exit(1)
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

// wait waits for the end of a child, or of any with -1.
func wait(pid int) (status syscall.WaitStatus, err error) {
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return status, os.NewSyscallError("wait4", err)
		}
	}
}
