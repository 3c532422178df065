package setup

import (
	"errors"
	"maps"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// leaveCgroupNamespace makes a control group namespace, with version 2. Its root is the sandbox's group, or that of programs if
// the files tasks lead there. With version 1 the host has made it, because there the thread that starts this process is in the
// group. The namespace belongs to a thread.
func (r *Root) leaveCgroupNamespace(tasks []int) error {
	if _, ok := r.Cgroups[""]; !ok {
		return nil
	}
	if err := onAllThreads("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP, 0); err != nil {
		return err
	}
	if len(tasks) != 2 { // not a pair
		return nil
	}
	namespace, err := codeNamespace(tasks[0], tasks[1])
	if err != nil || namespace < 0 {
		r.undivided = true
		maps.DeleteFunc(r.Cgroups, func(name, _ string) bool { return name != "" })
		return err
	}
	defer unix.Close(namespace)
	return onAllThreads("setns", unix.SYS_SETNS, uintptr(namespace), unix.CLONE_NEWCGROUP)
}

// codeNamespace makes a control group namespace whose root is the group to which the file code leads, and opens it. The file own
// leads back. The result is negative if the kernel refuses the moves, as some before Linux 5.16 do: they check the rights and the
// namespace of who writes the file, and not of who has opened it.
func codeNamespace(code, own int) (namespace int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	outer, err := openCgroupNamespace()
	if err != nil {
		return -1, err
	}
	defer unix.Close(outer)
	if moveThread(code) != nil {
		return -1, nil
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return -1, os.NewSyscallError("unshare", err)
	}
	namespace, err = openCgroupNamespace()
	if err != nil || moveThread(own) == nil {
		return namespace, err
	}
	_ = unix.Close(namespace)
	return -1, os.NewSyscallError("setns", unix.Setns(outer, unix.CLONE_NEWCGROUP)) // the host moves it back
}

// nobody is a user without rights.
const nobody = 65534

// moveThread moves the calling thread by a file, with the rights of nobody. Commands may have no more.
func moveThread(fd int) error {
	before, err := unix.SetfsuidRetUid(nobody)
	if err != nil {
		return os.NewSyscallError("setfsuid", err)
	}
	_, err = unix.Write(fd, []byte("0"))
	_, back := unix.SetfsuidRetUid(before)
	return errors.Join(os.NewSyscallError("write", err), os.NewSyscallError("setfsuid", back))
}

// openCgroupNamespace opens that of the calling thread.
func openCgroupNamespace() (int, error) {
	const file = "/proc/thread-self/ns/cgroup"
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: file, Err: err}
	}
	return fd, nil
}
