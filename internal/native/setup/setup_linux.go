package setup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// failure is an error with the party that can correct it.
type failure struct {
	fault Fault
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Run reads a Config from conn, builds the sandbox and answers with a Reply. It must be called by the first process of
// new mount, PID, IPC, UTS and network namespaces that has all capabilities, or, for a Config without Root, by a
// process in the sandbox's namespaces. Afterwards all threads of this process have the rights of the sandbox's user.
// The error has been reported.
//
// tasks are files by which a thread moves itself, when it writes "0": to a control group for programs, and back to its own.
// There is a pair for each controller. They are nil if the kernel does not let threads move, see Reply.Undivided.
func Run(conn *os.File) (tasks []int, err error) {
	var c Config
	if err := Receive(conn, &c); err != nil {
		return nil, err
	}
	files, err := receiveMounts(conn, c.Tasks)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		tasks = append(tasks, f.fd)
	}
	err = c.run(conn, tasks)
	if c.Root != nil && c.Root.undivided {
		for _, fd := range tasks {
			_ = unix.Close(fd) // nothing that counts was written
		}
		tasks = nil
	}
	return tasks, err
}

// run is Run with a Config.
func (c Config) run(conn *os.File, tasks []int) error {
	var keep []int
	if c.Held {
		keep = append(keep, heldFD)
		unix.CloseOnExec(heldFD)
	}
	if err := closeInherited(keep...); err != nil {
		return errors.Join(err, Send(conn, Reply{Step: "close descriptors of the host", Error: err.Error()}))
	}
	if err := ShareMemory("self"); err != nil {
		return errors.Join(err, Send(conn, Reply{Step: "set oom_score_adj", Error: err.Error()}))
	}
	// In a sandbox that exists, commands of the same user could otherwise trace this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return errors.Join(err, Send(conn, Reply{Step: "protect this process", Error: err.Error()}))
	}
	var passed []mount
	if c.Root != nil {
		var err error
		if passed, err = receiveMounts(conn, c.Root.passes()); err != nil {
			return err
		}
	}
	step, err := c.build(passed, tasks)
	switch {
	case err != nil:
	case c.Root == nil:
		return Send(conn, Reply{})
	default:
		return errors.Join(Send(conn, Reply{Copied: c.Root.copied, Undivided: c.Root.undivided}), sendFDs(conn, c.Root.shared))
	}
	return errors.Join(err, Send(conn, Reply{Step: step, Error: err.Error(), Fault: FaultOf(err)}))
}

// FaultOf returns who has to correct the cause of an error of this package. It is empty if it is the machine's.
func FaultOf(err error) Fault {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.fault
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return FaultDenied
	}
	return ""
}

// closeInherited closes the descriptors that this process got from the one that started it, except the standard streams
// and keep. A program that does not mark its descriptors passes them on to every process that it starts. Those of this
// process itself are marked.
func closeInherited(keep ...int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 || slices.Contains(keep, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 { //nolint:gosec // not negative
			_ = unix.Close(fd) // nothing was written
		}
	}
	return nil
}

// ShareMemory gives up the protection from the out-of-memory killer that a service of the host may have, for a process:
// "self" or an ID.
func ShareMemory(process string) error {
	file := "/proc/" + process + "/oom_score_adj"
	score, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(score, []byte("-")) {
		return err
	}
	return os.WriteFile(file, []byte("0"), 0)
}

// build does all steps. It returns the one that failed.
func (c Config) build(passed []mount, tasks []int) (step string, err error) {
	unix.Umask(0)
	defer unix.Umask(0o022)
	if c.Root != nil {
		if err := c.Root.leaveCgroupNamespace(tasks); err != nil { // it finds out which groups can be mounted
			return "leave the host's control group namespace", err
		}
		if step, err := c.buildRoot(passed); err != nil {
			return step, err
		}
		if err := c.complete(); err != nil {
			return "prepare the root file system", err
		}
		if err := loopback(); err != nil {
			return "start the loopback interface", err
		}
		if err := prohibit(c.Prohibited); err != nil {
			return "restrict the network", err
		}
	}
	if err := resetLimits(); err != nil {
		return "reset the limits of resources", err
	}
	// The files of users are the sandbox's. They may be links to files of the kernel, such as its log.
	if err := LimitCapabilities(c.Capabilities | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID); err != nil {
		return "drop capabilities", err
	}
	who, err := lookUp(c.User)
	if err != nil {
		return "look up the user", err
	}
	if c.OneUser && (who.uid != 0 || who.gid != 0) {
		return "become the user", &failure{FaultIDs, fmt.Errorf("there is only the user root, not %d:%d", who.uid, who.gid)}
	}
	if c.Processes > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: c.Processes, Max: c.Processes}); err != nil {
			return "limit the processes", os.NewSyscallError("setrlimit", err)
		}
	}
	if err := c.setEnv(who.home); err != nil {
		return "set the environment", &failure{FaultImage, err}
	}
	c.enterDir()
	if err := c.confine(who); err != nil {
		return "give up rights", err
	}
	return "", nil
}

// enterDir changes to the working directory while this process is still root, as the Engine does: the user may run commands
// there, but may not be able to enter it. If root cannot enter it either, the user may, or a command says what is wrong.
// No link of the kernel is followed, such as those to what this process has open.
func (c Config) enterDir() {
	if c.Dir == "" {
		return
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, c.Dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return
	}
	_ = unix.Fchdir(fd)
	_ = unix.Close(fd)
}

// buildRoot makes the sandbox's file systems the only ones.
func (c Config) buildRoot(passed []mount) (step string, err error) {
	r := *c.Root
	r.userNamespace = c.UserNamespace
	// Otherwise mounts made here would appear on the host, and the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "separate mounts from the host's", os.NewSyscallError("mount", err)
	}
	passed = r.takeDisk(passed)
	passed, volumes, err := c.Root.takeVolumes(passed)
	if err != nil {
		return "make volumes", err
	}
	s, err := r.open(passed)
	s.volumes = volumes
	defer s.close()
	if err != nil {
		return "open what is mounted", err
	}
	if err := r.enter(s); err != nil {
		return "make the root file system", err
	}
	c.Root.copied = r.copied
	if err := r.fill(s, c.OneUser); err != nil {
		return "mount file systems", err
	}
	if err := c.name(); err != nil { // before the mounts, which may be of the host's /etc
		return "write /etc", err
	}
	if err := r.bind(s, c.Volumes); err != nil {
		return "mount the host's files", err
	}
	return "", nil
}

// name makes the sandbox known by its host name.
func (c Config) name() error {
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return os.NewSyscallError("sethostname", err)
	}
	return c.writeEtc()
}

// writeEtc writes the files that contain the host name.
func (c Config) writeEtc() error {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::\tip6-localnet\nff00::\tip6-mcastprefix\n" +
		"ff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n"
	for _, line := range c.Hosts {
		hosts += line + "\n"
	}
	// On the line of localhost, that would be the canonical name of the host name.
	if !slices.ContainsFunc(c.Hosts, func(line string) bool { return slices.Contains(strings.Fields(line), c.Hostname) }) {
		hosts += "127.0.1.1\t" + c.Hostname + "\n"
	}
	resolver := ""
	if c.Resolver.IsValid() {
		resolver = "nameserver " + c.Resolver.String() + "\n"
	}
	for name, text := range map[string]string{"/etc/hostname": c.Hostname + "\n", "/etc/hosts": hosts, "/etc/resolv.conf": resolver} {
		if err := replace(name, text); err != nil {
			return &failure{FaultImage, err}
		}
	}
	if err := os.Symlink("/proc/mounts", "/etc/mtab"); err != nil && !errors.Is(err, os.ErrExist) {
		return &failure{FaultImage, err}
	}
	return nil
}

// complete makes the folders that the image and the user name. Then it makes the root file system read-only, if it is to be.
func (c Config) complete() error {
	for _, dir := range append(c.Volumes, c.Dir) {
		if dir == "" {
			continue
		}
		if err := makeFolder(path.Clean("/" + dir)); err != nil {
			return &failure{FaultImage, err}
		}
	}
	if !c.Root.ReadOnly {
		return nil
	}
	return mount{"the root file system", unix.AT_FDCWD}.restrictAt("/", unix.MOUNT_ATTR_RDONLY)
}

// replace writes a new file, instead of whatever the image has there.
func replace(name, text string) error {
	if err := makeFolder(path.Dir(name)); err != nil {
		return err
	}
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // every user may read it
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// onAllThreads makes a system call on all threads of this process.
func onAllThreads(name string, call, a, b uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(call, a, b, 0); errno != 0 {
		return os.NewSyscallError(name, errno)
	}
	return nil
}

// defaultPath is the PATH of an image without one, as in Docker.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// setEnv gives this process the environment of commands.
func (c Config) setEnv(home string) error {
	os.Clearenv()
	env := append([][]byte{[]byte("PATH=" + defaultPath), []byte("HOSTNAME=" + c.Hostname), []byte("HOME=" + home)}, c.Env...)
	for _, kv := range env {
		name, value, ok := bytes.Cut(kv, []byte("="))
		if !ok {
			return fmt.Errorf("%q has no value", kv)
		}
		if err := os.Setenv(string(name), string(value)); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}
