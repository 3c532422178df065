package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Launch describes a process that an OCI runtime starts in a sandbox. The host sends it to the guest's mode "runtime".
type Launch struct {
	// Config describes what is prepared for a new sandbox. User, Env, Capabilities and Seccomp are not used. A Config
	// without Root prepares nothing, for a further process of a sandbox.
	Config
	// Args are the path of the runtime's program, and its arguments. It must detach from the process that it starts.
	Args []string `json:"args"`
	// PIDFile is the file where the runtime writes the process's ID.
	PIDFile string `json:"pid_file"`
}

// MountPoint returns where Supervise mounts the number i of r.Mounts. The runtime has to mount it in the sandbox.
func (r Root) MountPoint(i int) string { return filepath.Join(r.Scratch, "mounts", strconv.Itoa(i)) }

// CgroupsPoint returns where Supervise mounts the control groups in r.Cgroups.
func (r Root) CgroupsPoint() string { return filepath.Join(r.Scratch, "cgroups") }

// RootPoint returns where Supervise mounts the root file system.
func (r Root) RootPoint() string { return filepath.Join(r.Scratch, "root") }

// Supervise reads a Launch from conn, mounts the sandbox's file systems, and runs the runtime with this process's
// standard streams, which the runtime passes on. It answers with a Reply only if it fails before that. It returns the
// exit code of the runtime if that is not 0, or else that of the process that the runtime started: 128 and the number of
// the signal that ended it. It must be called by a process with all capabilities in a new mount namespace, so that
// its mounts disappear with it and the sandbox.
func Supervise(conn *os.File) (int, error) {
	if err := closeInherited(); err != nil {
		return 0, err
	}
	var l Launch
	if err := Receive(conn, &l); err != nil {
		return 0, err
	}
	if l.Root != nil {
		passed, err := receiveMounts(conn, l.Root.passes())
		if err != nil {
			return 0, err
		}
		l.Root.takeDisk(passed)
	}
	if step, err := l.prepare(); err != nil {
		return 0, errors.Join(err, Send(conn, Reply{Step: step, Error: err.Error(), Fault: FaultOf(err)}))
	}
	return l.run()
}

// prepare mounts the sandbox's file systems for the runtime.
func (l Launch) prepare() (step string, err error) {
	// Mounts made here do not appear on the host, but the host's unmounts appear here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return "separate mounts from the host's", os.NewSyscallError("mount", err)
	}
	// crun refuses control groups of version 1 if version 2 is mounted there too.
	if err := unix.Unmount(cgroupRoot+"/unified", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return "unmount version 2 of control groups", os.NewSyscallError("umount", err)
	}
	if l.Root == nil {
		return "", nil
	}
	l.Root.userNamespace = l.UserNamespace
	unix.Umask(0)
	defer unix.Umask(0o022)
	var s sources
	defer func() { s.close() }()
	if err := l.Root.openBinds(&s); err != nil {
		return "open what is mounted", err
	}
	if err := l.Root.openCgroups(&s); err != nil {
		return "open the control groups", err
	}
	if err := l.Root.mount(nil); err != nil {
		return "make the root file system", err
	}
	if err := InThread(func() error { return l.inRoot(s) }); err != nil {
		return "prepare the root file system", err
	}
	if err := l.Root.attachBinds(s); err != nil {
		return "mount the host's files", err
	}
	err = os.Mkdir(l.Root.CgroupsPoint(), 0o755) //nolint:gosec // every user may read it
	if err == nil {
		err = attachCgroups(s.cgroups, l.Root.CgroupsPoint())
	}
	if err != nil {
		return "mount the control groups", err
	}
	return "", nil
}

// attachBinds mounts what the user mounts where the runtime finds it.
func (r Root) attachBinds(s sources) error {
	for i, m := range s.binds {
		at := r.MountPoint(i)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := m.makeTarget(at); err != nil {
			return err
		}
		if err := m.attach(at); err != nil {
			return err
		}
	}
	return nil
}

// inRoot makes folders and files in the root file system. Meanwhile that is the root directory of the calling thread, so
// no link in the image leads out of it. The thread must end afterwards.
func (l Launch) inRoot(s sources) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Chroot(l.Root.RootPoint()); err != nil {
		return &os.PathError{Op: "chroot", Path: l.Root.RootPoint(), Err: err}
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := makeTargets(); err != nil {
		return err
	}
	if err := l.writeEtc(); err != nil {
		return err
	}
	if err := makeFolder("/dev/shm"); err != nil { // hidden later; a mount's target may be a link to it
		return &failure{FaultImage, err}
	}
	for i, m := range l.Root.Mounts {
		err := s.binds[i].makeTarget(m.Container)
		if err == nil {
			err = checkTarget(m.Container)
		}
		if err != nil {
			return &failure{FaultMount, fmt.Errorf("mount %s: %w", m.Host, err)}
		}
	}
	for _, t := range l.Root.Tmpfs { // the runtime makes a folder that is missing, with the mode of a new tmpfs
		if err := checkTarget(t.Container); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &failure{FaultMount, fmt.Errorf("mount a tmpfs: %w", err)}
		}
	}
	return l.complete()
}

// checkTarget returns an error for a mount point that leads to a reserved path.
func checkTarget(at string) error {
	real, err := filepath.EvalSymlinks(at)
	if err == nil && Reserved(real) {
		err = fmt.Errorf("%s leads to %s, which is reserved", at, real)
	}
	return err
}

// run runs the runtime, and waits for the process that it starts.
func (l Launch) run() (int, error) {
	// What the runtime starts becomes a child of this process when the runtime exits.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	pid, err := syscall.ForkExec(l.Args[0], l.Args, &syscall.ProcAttr{Dir: "/", Env: []string{"PATH=" + defaultPath}, Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 0, &os.PathError{Op: "start", Path: l.Args[0], Err: err}
	}
	// The sandbox is alone with the host: its end must end the connection.
	if err := closeStandard(); err != nil {
		return 0, err
	}
	code, err := wait(pid)
	if err != nil || code != 0 {
		return code, err
	}
	text, err := os.ReadFile(l.PIDFile)
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, fmt.Errorf("%s: %w", l.PIDFile, err)
	}
	return waitAmong(-1, pid) // a process of the runtime may still be its parent
}
