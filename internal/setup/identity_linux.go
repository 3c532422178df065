package setup

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/files"
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

// ConfineThread gives up, for the calling thread, what no process of a sandbox may have: capabilities beyond a set, new
// privileges, the session keyring, a higher priority, another personality(2). A process that the thread starts has all of this thread's capabilities, but it and its
// descendants cannot regain one beyond the set that they have given up. The thread must end afterwards.
//
// A process could do so for itself, but only thread by thread, and each capability takes a system call: 2 ms of a start.
func ConfineThread(capabilities uint64) error {
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return os.NewSyscallError("keyctl", err) // where keys are denied, or unknown, there are none to protect
	}
	if err := resetThread(); err != nil {
		return err
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

// resetThread gives up a higher priority and another personality of the calling thread, and of what it starts.
func resetThread() error {
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0, 0, 0); errno != 0 { // PER_LINUX
		return os.NewSyscallError("personality", errno)
	}
	// Getpriority returns 20 minus the nice value.
	if p, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || p <= 20 {
		return nil //nolint:nilerr // unknown: where this is denied, so is a higher one
	}
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, 0))
}

// confine gives up all rights that the user does not have in the sandbox, on all threads. The thread that started this
// process has called ConfineThread.
func (c Config) confine(who identity) error {
	if groups, err := syscall.Getgroups(); !c.OneUser && (err != nil || len(groups)+len(who.groups) > 0) { // groups of the host may look equal
		if err := syscall.Setgroups(who.groups); err != nil {
			return os.NewSyscallError("setgroups", err)
		}
	}
	if r, e, s := unix.Getresgid(); r != who.gid || e != who.gid || s != who.gid {
		if err := syscall.Setresgid(who.gid, who.gid, who.gid); err != nil {
			return os.NewSyscallError("setresgid", err)
		}
	}
	if r, e, s := unix.Getresuid(); r != who.uid || e != who.uid || s != who.uid {
		if err := syscall.Setresuid(who.uid, who.uid, who.uid); err != nil {
			return os.NewSyscallError("setresuid", err)
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
