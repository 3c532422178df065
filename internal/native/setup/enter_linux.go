package setup

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// pidfd is the descriptor through which Enter finds the sandbox.
const pidfd = 3

// Enter runs the guest's program in a sandbox, in the mode "join", with this process's standard streams. Descriptor 3
// is a pidfd of the sandbox's first process, whose control groups this process is in. Enter returns the guest's exit
// code, or 128 and the number of the signal that ended it.
func Enter() (int, error) {
	unix.CloseOnExec(pidfd)
	if err := closeInherited(pidfd); err != nil {
		return 0, err
	}
	var own, there unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &own); err != nil {
		return 0, &os.PathError{Op: "stat", Path: "/proc/self/exe", Err: err}
	}
	runtime.LockOSThread() // until the end of the process: the namespaces are the thread's
	// A thread that shares its root with others cannot enter a mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, os.NewSyscallError("unshare", err)
	}
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	if err := unix.Setns(pidfd, all); err != nil {
		return 0, os.NewSyscallError("setns", err)
	}
	// The program begins with all rights, so it must be this one.
	program := GuestDir + "/" + Guest
	if err := unix.Stat(program, &there); err != nil {
		return 0, &os.PathError{Op: "stat", Path: program, Err: err}
	}
	if there.Dev != own.Dev || there.Ino != own.Ino {
		return 0, fmt.Errorf("%s is another program", program)
	}
	pid, err := syscall.ForkExec(program, []string{program, "join"}, &syscall.ProcAttr{Dir: "/", Files: []uintptr{0, 1, 2}, Env: []string{"GOMAXPROCS=1"}})
	if err != nil {
		return 0, &os.PathError{Op: "start", Path: program, Err: err}
	}
	if err := closeStandard(); err != nil {
		return 0, err
	}
	return wait(pid)
}
