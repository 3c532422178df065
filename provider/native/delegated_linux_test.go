//go:build amd64 || arm64

package native

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/creack/pty"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/test/tier"
)

// asThread calls f in a thread of another user, without capabilities.
func asThread(t *testing.T, user int, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.CI, errors.New("the test needs root"))
	}
	err := setup.InThread(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
			return errno
		}
		f()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Only the files' owners and attributes count. They are those of control groups in any file system.
func TestIsDelegated(t *testing.T) {
	t.Parallel()
	const user = 54321
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // for the other user
		t.Fatal(err)
	}
	service, session := filepath.Join(dir, "service"), filepath.Join(dir, "session")
	scope, marked := filepath.Join(session, "scope"), filepath.Join(session, "marked")
	for _, folder := range []string{service, session, scope, marked} {
		if err := errors.Join(os.Mkdir(folder, 0o755), os.Chown(folder, user, user)); err != nil { //nolint:gosec // as control groups
			t.Fatal(err)
		}
	}
	wanted := map[string]bool{service: true, scope: false, marked: true, cgroupRoot: true}
	switch err := unix.Setxattr(marked, "user.delegate", []byte("1"), 0); {
	case errors.Is(err, unix.ENOTSUP): // of a file system in memory, before Linux 6.6
		delete(wanted, marked)
	case err != nil:
		t.Fatal(os.NewSyscallError("setxattr", err))
	}
	asThread(t, user, func() {
		for folder, want := range wanted {
			if got := isDelegated(folder); got != want {
				t.Errorf("%s: got %t", folder, got)
			}
		}
	})
	if !isDelegated(scope) {
		t.Error("not delegated to root")
	}
}

// vacate ignores that a group cannot have a controller: the limit fails later. A group that stays busy is an error. The
// files of the group are others here, which return such errors. The test is not parallel, because TestMode is a variable.
func TestVacate_errors(t *testing.T) {
	const user = 54321
	defer func(before bool) { cgroups.TestMode = before }(cgroups.TestMode)
	cgroups.TestMode = true
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer terminal.Close()
	busy := terminal.Name()
	if err := errors.Join(os.Chown(busy, user, user), unix.IoctlSetInt(int(terminal.Fd()), unix.TIOCEXCL, 0)); err != nil { //nolint:gosec // a descriptor
		t.Fatal(err)
	}
	for target, want := range map[string]error{"/dev/full": nil, "/dev/null": nil, busy: unix.EBUSY} {
		dir := t.TempDir()
		err := errors.Join(
			os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, user, user), //nolint:gosec // for the other user
			os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644), //nolint:gosec // as above
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o644),                               //nolint:gosec // as above
			os.Symlink(target, filepath.Join(dir, "cgroup.subtree_control")),
		)
		if err != nil {
			t.Fatal(err)
		}
		asThread(t, user, func() {
			if err := vacate(dir); !errors.Is(err, want) {
				t.Errorf("%s: got %v", target, err)
			}
		})
	}
}
