//go:build amd64 || arm64

package native

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/wire"
)

// Ids of sandboxes in user namespaces. No user of a host has them, and neither has a container of another program: they
// follow the ranges that systemd and shadow give to containers. Each sandbox has idsOfEach of them. Which ones follows
// from its folder, so two of many sandboxes may have the same.
const (
	firstID   = 0x7000_0000
	lastID    = 0x7ffe_0000
	idsOfEach = 0x1_0000
)

// scratch is the path of the writable layer while a sandbox in a user namespace is made. There every user may enter it,
// and it is not needed any more.
const scratch = "/sys"

// idRange returns the first host id of the sandbox with a folder.
func idRange(folder string) int {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(folder)) // never fails
	const n = (lastID - firstID) / idsOfEach
	return firstID + int(sum.Sum64()%n)*idsOfEach //nolint:gosec // below 2^31
}

// inUserNamespace reports whether sandboxes are in user namespaces.
func (p *Provider) inUserNamespace() bool { return p.opts.UserNamespace || rootless() }

// mapIDs makes a process start as root of a new user namespace, for the sandbox with a folder. Subordinate ids are
// assigned when the process has started.
func (p *Provider) mapIDs(attributes *syscall.SysProcAttr, folder string) {
	if p.ids != nil {
		p.ids.attributes(attributes)
		return
	}
	attributes.Cloneflags |= unix.CLONE_NEWUSER
	if rootless() {
		attributes.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		attributes.Credential = &syscall.Credential{NoSetGroups: true}
		return
	}
	ids := []syscall.SysProcIDMap{{HostID: idRange(folder), Size: idsOfEach}}
	attributes.UidMappings, attributes.GidMappings, attributes.GidMappingsEnableSetgroups = ids, ids, true
	attributes.Credential = &syscall.Credential{}
}

// rootID returns the host id of root in a sandbox that root makes.
func (sb *sandbox) rootID() int {
	if sb.p.opts.UserNamespace {
		return idRange(sb.folder)
	}
	return 0
}

// reachProgram makes a command in a user namespace find its program, by a relative path: its user may not enter the
// folders above. The calling thread gets another working directory.
func reachProgram(cmd *exec.Cmd) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Chdir(filepath.Dir(cmd.Path)); err != nil {
		return &os.PathError{Op: "chdir", Path: filepath.Dir(cmd.Path), Err: err}
	}
	cmd.Path, cmd.Dir = "./"+filepath.Base(cmd.Path), ""
	return nil
}

// pass sends a first process the host's files that it may not open itself.
func (p *process) pass(r setup.Root) error {
	userns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.pid))
	if err != nil {
		return err
	}
	defer userns.Close()
	send := func(fd int) error { return p.WriteFile([]byte{0}, fd) }
	err = wire.Control(userns, func(ns int) error { return r.Pass(send, ns) })
	if fault := setup.FaultOf(err); fault != "" {
		return &fumehood.Error{Class: classOf(fault), Err: err, Hint: hintOf(fault)}
	}
	return err
}
