//go:build amd64 || arm64

package native

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// subordinate are host ids that this user may use besides its own, by programs with more rights. In sandboxes the user
// is root, and these are the users and groups 1 to 65535. A root without rootRights may use the ids of its own namespace.
type subordinate struct {
	firstUID, firstGID int
	uidMapper          string // the path of newuidmap; empty for root
	gidMapper          string
	guest              func() (string, error)
}

// subordinateIDs returns the ids that this user has. The error says why there are none, or why they cannot be used.
func subordinateIDs() (*subordinate, error) {
	if isRoot() {
		return rootIDs()
	}
	u, err := user.Current()
	if err != nil {
		return nil, err
	}
	s := &subordinate{}
	if s.firstUID, err = firstOf("/etc/subuid", "/proc/self/uid_map", u); err != nil {
		return nil, err
	}
	if s.firstGID, err = firstOf("/etc/subgid", "/proc/self/gid_map", u); err != nil {
		return nil, err
	}
	s.uidMapper, err = exec.LookPath("newuidmap")
	if err == nil {
		s.gidMapper, err = exec.LookPath("newgidmap")
	}
	if err != nil {
		return nil, err
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || n != 0 {
		return nil, errors.New("this process may not get new privileges, which newuidmap needs")
	}
	return s, nil
}

// rootIDs returns the ids of a root without rootRights.
func rootIDs() (*subordinate, error) {
	has, err := setup.PermittedSet()
	if err != nil {
		return nil, err
	}
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETFCAP
	if has&needed != needed {
		return nil, errors.New("root lacks one of the capabilities SETUID, SETGID and SETFCAP")
	}
	for _, mapping := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		here, err := os.ReadFile(mapping)
		if err != nil {
			return nil, err
		}
		if !mapped(string(here), 0, idsOfEach) {
			return nil, fmt.Errorf("this process's user namespace has not all ids from 0 to %d", idsOfEach-1)
		}
	}
	return &subordinate{firstUID: 1, firstGID: 1}, nil
}

// firstOf returns the first of 65535 host ids that a user has in a file of subuid(5), if this process's user namespace
// has them.
func firstOf(file, mapping string, u *user.User) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	here, err := os.ReadFile(mapping)
	if err != nil {
		return 0, err
	}
	const needed = idsOfEach - 1
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != u.Username && f[0] != u.Uid {
			continue
		}
		first, err := strconv.ParseUint(f[1], 10, 32)
		count, cerr := strconv.ParseUint(f[2], 10, 32)
		if err == nil && cerr == nil && count >= needed && mapped(string(here), first, needed) {
			return int(first), nil //nolint:gosec // 32 bits
		}
	}
	return 0, fmt.Errorf("%s has no %d ids in a row for the user %s", file, needed, u.Username)
}

// mapped reports whether a user namespace has all ids of a range, according to its map.
func mapped(text string, first, count uint64) bool {
	for line := range strings.Lines(text) {
		var inside, outside, n uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil && first >= inside && first+count <= inside+n {
			return true
		}
	}
	return false
}

// attributes makes a process start in a new user namespace that has no ids yet. It keeps its rights there.
func (s *subordinate) attributes(a *syscall.SysProcAttr) {
	a.Cloneflags |= unix.CLONE_NEWUSER
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		a.AmbientCaps = append(a.AmbientCaps, c)
	}
}

// assign gives the ids, if there are any, to the user namespace of a process, which waits meanwhile.
func (s *subordinate) assign(ctx context.Context, pid int) error {
	if s == nil {
		return nil
	}
	if err := s.writeMaps(ctx, pid); err != nil {
		return fmt.Errorf("map subordinate ids: %w", err)
	}
	return nil
}

func (s *subordinate) writeMaps(ctx context.Context, pid int) error {
	if s.uidMapper == "" {
		line := fmt.Appendf(nil, "0 0 %d\n", idsOfEach)
		err := os.WriteFile(fmt.Sprintf("/proc/%d/uid_map", pid), line, 0)
		return cmp.Or(err, os.WriteFile(fmt.Sprintf("/proc/%d/gid_map", pid), line, 0))
	}
	mapBy := func(program string, own, first int) error {
		cmd := exec.CommandContext(ctx, program, strconv.Itoa(pid), "0", strconv.Itoa(own), "1", "1", strconv.Itoa(first), strconv.Itoa(idsOfEach-1)) //nolint:gosec // numbers
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(out))
		}
		return nil
	}
	groups := make(chan error, 1)
	go func() { groups <- mapBy(s.gidMapper, os.Getegid(), s.firstGID) }()
	err := mapBy(s.uidMapper, os.Geteuid(), s.firstUID)
	return cmp.Or(err, <-groups)
}

var _ imagestore.Owners = (*subordinate)(nil)

// Set implements imagestore.Owners.
func (s *subordinate) Set(ctx context.Context, dir string, files []imagestore.Owned) error {
	return s.own(ctx, setup.Tree{Dir: []byte(dir)}, files)
}

// Remove implements imagestore.Owners.
func (s *subordinate) Remove(ctx context.Context, dir string) error {
	return s.own(ctx, setup.Tree{Dir: []byte(dir), Remove: true}, nil)
}

// own runs the guest's program, in a user namespace with the ids, to change the owners of files.
func (s *subordinate) own(ctx context.Context, t setup.Tree, files []imagestore.Owned) error {
	guest, err := s.guest()
	if err != nil {
		return err
	}
	tail := ring.NewTail(complaint)
	cmd := exec.CommandContext(ctx, guest, "own") //nolint:gosec // Fumehood's own program
	cmd.Env, cmd.Dir, cmd.Stderr, cmd.SysProcAttr = []string{}, filepath.Dir(guest), tail, &syscall.SysProcAttr{Setsid: true}
	s.attributes(cmd.SysProcAttr)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	err = s.assign(ctx, cmd.Process.Pid)
	if err == nil {
		err = send(in, t, files)
	}
	_ = in.Close() // send has written everything
	if err = cmp.Or(err, cmd.Wait()); err != nil {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("change owners of files: %w%s", err, lastOutput(tail))}
	}
	return nil
}

// send writes a job, as setup.Own reads it.
func send(w io.Writer, t setup.Tree, files []imagestore.Owned) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	if err := e.Encode(t); err != nil {
		return err
	}
	for _, f := range files {
		if err := e.Encode(setup.Owned{Name: []byte(f.Name), UID: f.UID, GID: f.GID, Mode: f.Mode}); err != nil {
			return err
		}
	}
	return b.Flush()
}

// storeName returns the name of the folder with the images. Their files belong to this user and to its subordinate ids.
func (s *subordinate) storeName() string {
	if s == nil {
		return "images-of-one-owner"
	}
	return fmt.Sprintf("images-of-%d-%d", s.firstUID, s.firstGID)
}
