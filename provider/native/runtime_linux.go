//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// ociRuntime is an OCI runtime that starts the processes of sandboxes.
type ociRuntime struct {
	name    string // as the user or a spec names it
	program string // its path
	gvisor  bool   // it is gVisor's runsc
	layer   string // the kind and size of gVisor's own writable layer
}

// runtimes are the names of runtimes that a spec may contain. It may be from a file of someone else, so it cannot name
// any other program.
var runtimes = []string{"crun", "runc", "runsc"}

// runtimeOf returns the runtime of a sandbox: that of the options, or that of the spec if it isolates more or the
// options name none. It returns nil if no runtime is wanted.
func (p *Provider) runtimeOf(spec fumehood.Spec) (*ociRuntime, error) {
	name := p.opts.Runtime
	if spec.Runtime != "" && spec.Runtime != name {
		if !slices.Contains(runtimes, spec.Runtime) {
			return nil, &fumehood.Error{
				Class: fumehood.ErrConfig, Err: fmt.Errorf("unknown runtime %q, only %s", spec.Runtime, strings.Join(runtimes, ", ")),
				Hint: "select another program with --runtime",
			}
		}
		if name == "" || isGVisor(spec.Runtime) && !isGVisor(name) {
			name = spec.Runtime
		}
	}
	feature := ""
	switch {
	case name == "":
		return nil, nil
	case spec.Compose != nil:
		feature = withProject
	case rootless() && !isGVisor(name):
		feature = "without root"
	case delegates() && !rootless():
		feature = "without control groups"
	case p.opts.UserNamespace:
		feature = "in a user namespace"
	case spec.Keep:
		feature = "for a kept sandbox"
	case !spec.Network.IsNone():
		feature = "with a network"
	}
	if feature != "" {
		return nil, notByRuntime(name, feature)
	}
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("runtime %s: a relative path", name), Hint: "name a program, or its absolute path"}
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("runtime: %w", err), Hint: "install it, or name another one"}
	}
	return &ociRuntime{name: name, program: program, gvisor: isGVisor(name)}, nil
}

// isGVisor reports whether a runtime is gVisor's, by its program's name.
func isGVisor(name string) bool {
	base := filepath.Base(name)
	return strings.Contains(base, "runsc") || strings.Contains(base, "gvisor")
}

// guest returns the path of the guest's program in the sandbox.
func (o *ociRuntime) guest() string {
	if o.gvisor {
		return setup.GuestDir + "/" + readableGuest
	}
	return setup.GuestDir + "/" + setup.Guest
}

// args returns the command line for one of the runtime's commands. All of its state is in a folder.
func (o *ociRuntime) args(state, command string, more ...string) []string {
	args := []string{o.program, "--root", state}
	if o.gvisor {
		args = append(args, "--network=none", "--overlay2=root:"+o.layer)
	}
	if rootless() { // its processes are in the sandbox's control group already, if there is one
		args = append(args, "--rootless", "--ignore-cgroups")
	}
	return append(append(args, command, "--detach"), more...)
}

// Files and folders of a runtime in a sandbox's folder.
const (
	stateFolder = "runtime" // the runtime's own
	processFile = "process.json"
)

// container is the name that the runtime gives to a sandbox.
const container = "sandbox"

// launchRuntime starts the runtime, which starts the first process. disk is the writable layer; nil if that is in memory.
func (s *service) launchRuntime(ctx context.Context, disk *os.File) error {
	if !rootless() { // there it is the sandbox's, which exists
		if err := s.starters.create(); err != nil {
			return fmt.Errorf("make control groups: %w", err)
		}
	}
	spec, err := s.ociSpec()
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.config.Root.RootPoint(), 0o700); err != nil { // runc looks for it in the host's mount namespace too
		return err
	}
	if err := writeJSON(filepath.Join(s.sb.folder, "config.json"), spec); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(s.sb.folder, processFile), spec.Process); err != nil {
		return err
	}
	root := s.config.Root
	s.oci.layer = fmt.Sprintf("memory,size=%d", root.Size)
	if disk != nil { // a file on it, which must not be larger
		if s.oci.gvisor && strings.Contains(root.Scratch, ",") {
			return &fumehood.Error{Class: fumehood.ErrConfig, Path: root.Scratch, Err: errors.New("gVisor cannot use a path with a comma"), Hint: "choose another folder for the state"}
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(disk.Fd()), &st); err != nil {
			return os.NewSyscallError("fstatfs", err)
		}
		s.oci.layer = fmt.Sprintf("dir=%s,size=%d", root.Scratch, st.Bavail*uint64(st.Bsize)) //nolint:gosec // not negative
	}
	s.init, err = s.supervise(ctx, setup.Launch{Config: s.config}, "run", "--bundle", s.sb.folder)
	if err == nil && disk != nil {
		err = s.init.sendFiles(disk)
	}
	return err
}

// supervise starts a guest in the sandbox by one of the runtime's commands.
func (s *service) supervise(ctx context.Context, l setup.Launch, command string, more ...string) (*process, error) {
	pids, err := os.MkdirTemp(s.sb.folder, "pid-")
	if err != nil {
		return nil, err
	}
	l.PIDFile = filepath.Join(pids, "pid")
	l.Args = s.oci.args(filepath.Join(s.sb.folder, stateFolder), command, append(more, "--pid-file", l.PIDFile, container)...)
	// It gives up rights itself.
	attributes := &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if rootless() {
		s.sb.p.mapIDs(attributes, s.sb.folder)
	}
	p, err := launch(s.sb.guest, s.starters, allRights, attributes, modeRuntime, nil)
	if err != nil {
		return nil, err
	}
	if err = s.sb.p.ids.assign(ctx, p.pid); err == nil {
		err = setup.Send(p, l)
	}
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// endRuntime kills what the runtime has started in a user namespace: the descendants of the process that supervises it.
func (s *service) endRuntime(ctx context.Context) error {
	var namespace unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/user", s.init.pid), &namespace); err != nil || s.init.over() {
		return nil // everything has ended: the supervisor waits for it
	}
	return eventually(ctx, func() (none bool, err error) {
		none = true
		for _, pid := range descendants([]int{s.init.pid})[1:] {
			if killIn("user", namespace.Ino, pid) {
				none = false
			}
		}
		return none, nil
	})
}

// configure sends a guest its Config and waits for the answer.
func (s *service) configure(ctx context.Context, p *process, c setup.Config) error {
	if s.oci == nil {
		var err error
		if p.tasks, err = s.cgroup.openTasks(); err != nil {
			return err
		}
		defer closeFiles(p.tasks)
		return p.configure(ctx, c)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, box.Slow(startWithin))
	watched := make(chan struct{})
	go func() { // a process that a killed runtime has left may keep the connection open
		defer close(watched)
		select {
		case <-p.ended:
			_ = p.SetDeadline(time.Now().Add(time.Second)) // after its last words
		case <-ctx.Done():
		}
	}()
	c.Root, c.Seccomp = nil, nil // by the runtime
	err := p.configure(ctx, c)
	defer func() {
		cancel()
		<-watched
	}()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = cmp.Or(context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("runtime %s: %w", s.oci.name, err)
	}
	return nil
}

func writeJSON(file string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
