package setup

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/files"
)

// identity is a user of the sandbox.
type identity struct {
	uid, gid int
	groups   []int
	home     string
}

// lookUp resolves a user with the image's files, as Docker does.
func lookUp(user string) (identity, error) {
	if user == "" {
		user = "0"
	}
	u, err := files.LookUpUser(user)
	if err != nil {
		return identity{}, &failure{FaultUser, err}
	}
	return identity{u.UID, u.GID, u.Groups, u.Home}, nil
}

// failure returns the error of a system call that sets ids. The kernel refuses those that the user namespace lacks.
func (i identity) failure(call string, err error) error {
	if errors.Is(err, unix.EINVAL) {
		return &failure{FaultUser, fmt.Errorf("user %d:%d with the groups %v: an id is missing in the user namespace", i.uid, i.gid, i.groups)}
	}
	return os.NewSyscallError(call, err)
}

// ConfineThread gives up, for the calling thread, what no process of a sandbox may have: capabilities beyond a set, new
// privileges, the session keyring. A process that the thread starts has all of this thread's capabilities, but it and its
// descendants cannot regain one beyond the set that they have given up. The thread must end afterwards.
//
// A process could do so for itself, but only thread by thread, and each capability takes a system call: 2 ms of a start.
func ConfineThread(capabilities uint64) error {
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return os.NewSyscallError("keyctl", err) // where keys are denied, or unknown, there are none to protect
	}
	permitted, err := PermittedSet()
	if err != nil {
		return err
	}
	bounding, err := BoundingSet()
	if err != nil {
		return err
	}
	// A program that root executes gets the inheritable capabilities too.
	if err := setThreadCapabilities(permitted, permitted&bounding); err != nil {
		return err
	}
	for n := range 64 {
		if permitted&(1<<unix.CAP_SETPCAP) != 0 && bounding&^capabilities&(1<<n) != 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
				return os.NewSyscallError("prctl", err)
			}
		}
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// ResetThread gives up, for the calling thread and what it starts, what a sandbox must not get from the process that
// starts it: a higher priority, a real-time policy, another personality(2). The thread must end afterwards. With a
// real-time policy it could not enter a control group with version 1.
func ResetThread() error {
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0, 0, 0); errno != 0 { // PER_LINUX
		return os.NewSyscallError("personality", errno)
	}
	// Where a call that asks is denied, so is what it asks for.
	const process, shift, realTime = 1, 13, 1 // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_SHIFT and IOPRIO_CLASS_RT of ioprio_set(2)
	if p, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, process, 0, 0); errno == 0 && p>>shift == realTime {
		if _, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_SET, process, 0, 0); errno != 0 {
			return os.NewSyscallError("ioprio_set", errno)
		}
	}
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if attr.Policy == unix.SCHED_NORMAL || attr.Policy == unix.SCHED_BATCH || attr.Policy == unix.SCHED_IDLE {
		if attr.Nice >= 0 {
			return nil
		}
		attr.Nice = 0
	} else {
		attr = &unix.SchedAttr{Size: attr.Size, Policy: unix.SCHED_NORMAL, Flags: attr.Flags & unix.SCHED_FLAG_RESET_ON_FORK}
	}
	return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(0, attr, 0))
}

// Become makes this process a user of the image, and returns the user's home. As root it keeps the capabilities that it
// has. Only root can become another user: otherwise the error is an EPERM.
func Become(user string) (home string, err error) {
	who, err := lookUp(user)
	if err != nil {
		return "", err
	}
	var c Config
	if c.Capabilities, err = PermittedSet(); err != nil {
		return "", err
	}
	if uid := os.Getuid(); uid != 0 {
		if uid == who.uid && os.Getgid() == who.gid {
			return who.home, nil
		}
		return "", unix.EPERM
	}
	return who.home, c.confine(who)
}

// confine gives up all rights that the user does not have in the sandbox, on all threads. The thread that started this
// process has called ConfineThread.
func (c Config) confine(who identity) error {
	if groups, err := syscall.Getgroups(); !c.OneUser && (err != nil || len(groups)+len(who.groups) > 0) { // groups of the host may look equal
		if err := syscall.Setgroups(who.groups); err != nil {
			return who.failure("setgroups", err)
		}
	}
	if r, e, s := unix.Getresgid(); r != who.gid || e != who.gid || s != who.gid {
		if err := syscall.Setresgid(who.gid, who.gid, who.gid); err != nil {
			return who.failure("setresgid", err)
		}
	}
	if r, e, s := unix.Getresuid(); r != who.uid || e != who.uid || s != who.uid {
		if err := syscall.Setresuid(who.uid, who.uid, who.uid); err != nil {
			return who.failure("setresuid", err)
		}
	}
	var permitted uint64
	if who.uid == 0 {
		permitted = c.Capabilities
	}
	if err := setCapabilities(permitted); err != nil {
		return err
	}
	if len(c.Seccomp) == 0 {
		return nil
	}
	return filter(c.Seccomp)
}
