//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

const cgroupRoot = "/sys/fs/cgroup"

// ownedGroups makes control groups that belong to the stranger.
func ownedGroups(t *testing.T) (all []string) {
	if cgroups.IsCgroup2UnifiedMode() {
		return ownedGroup2(t)
	}
	for _, own := range currentGroups(t) {
		dir, err := os.MkdirTemp(own, "fumehood-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = os.Remove(dir + "/fumehood") // may not have been made
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		files, err := filepath.Glob(dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range append(files, dir) {
			if err := os.Chown(f, stranger, stranger); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, dir)
	}
	return all
}

// currentGroups returns the control groups of this process.
func currentGroups(t *testing.T) (all []string) {
	if cgroups.IsCgroup2UnifiedMode() {
		own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return []string{filepath.Join(cgroupRoot, own[""])}
	}
	for _, controller := range []string{"memory", "pids", "cpu", "freezer"} {
		own, err := cgroups.GetOwnCgroupPath(controller)
		if err != nil {
			tier.Missing(t, tier.CI, err)
		}
		all = append(all, own)
	}
	return all
}

// newGroup2 makes a control group of version 2 with controllers.
func newGroup2(t *testing.T) string {
	t.Helper()
	if err := cgroups.WriteFile(cgroupRoot, "cgroup.subtree_control", "+cpu +memory +pids"); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	dir, err := os.MkdirTemp(cgroupRoot, "fumehood-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, made := range []string{"/fumehood/host", "/fumehood"} {
			_ = os.Remove(dir + made) // may not have been made
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ownedGroup2 makes a control group of version 2 for the stranger, as systemd does with Delegate=yes.
func ownedGroup2(t *testing.T) []string {
	dir := newGroup2(t)
	for _, file := range []string{"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"} {
		if err := os.Chown(dir+file, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	return []string{dir}
}

// markDelegated marks a control group of version 2 as systemd does with Delegate=yes.
func markDelegated(t *testing.T, group string) {
	t.Helper()
	if err := unix.Setxattr(group, "user.delegate", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

// A group that the user may write, below another one like that, is used only if it is marked as handed over.
func TestProvider_Start_groupOfSession(t *testing.T) {
	t.Parallel()
	if !cgroups.IsCgroup2UnifiedMode() {
		t.Skip("needs version 2 of control groups")
	}
	asUserWith(t, rights{groups: ownedGroup2}, groupOfSession)
}

func groupOfSession(t *testing.T) {
	own := currentGroups(t)[0]
	session := filepath.Join(own, "session")
	err := os.Mkdir(session, 0o755) //nolint:gosec // as all control groups
	if err == nil {
		err = cgroups.WriteCgroupProc(session, os.Getpid())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := cgroups.WriteCgroupProc(own, os.Getpid())
		_ = os.Remove(session + "/fumehood") // may not have been made
		if err = errors.Join(err, os.Remove(session)); err != nil {
			t.Error(err)
		}
	})
	p := newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	for _, marked := range []bool{false, true, true} {
		if marked {
			markDelegated(t, session)
		}
		sb := start(t, p, fumehood.Spec{Image: busybox})
		made, err := filepath.Glob(session + "/fumehood/fumehood-*")
		if err != nil || (len(made) > 0) != marked {
			t.Errorf("marked %v: groups %q, %v", marked, made, err)
		}
		if text, err := os.ReadFile(own + "/cgroup.subtree_control"); err != nil || len(text) > 0 {
			t.Errorf("marked %v: controllers of the group above: %q, %v", marked, text, err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// In a container the first control group that root sees has processes. They are moved, since the sandboxes' groups could not
// have controllers otherwise.
func TestProvider_Start_cgroupNamespace(t *testing.T) {
	t.Parallel()
	need(t)
	if !cgroups.IsCgroup2UnifiedMode() || os.Geteuid() != 0 {
		t.Skip("needs version 2 of control groups, and root")
	}
	const inside = "FUMEHOOD_TEST_CGROUP_NAMESPACE"
	if os.Getenv(inside) == "" {
		group, err := os.Open(newGroup2(t))
		if err != nil {
			t.Fatal(err)
		}
		defer group.Close()
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			UseCgroupFD: true, CgroupFD: int(group.Fd()), Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP,
		}
		tier.Again(t, cmd)
		return
	}
	if err := errors.Join(unix.Unmount(cgroupRoot, unix.MNT_DETACH), unix.Mount("cgroup2", cgroupRoot, "cgroup2", 0, "")); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, native.Options{})
	for range 2 {
		sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20}})
		if got := run(t, sb, "cat /sys/fs/cgroup/memory.max"); got != "67108864" {
			t.Errorf("got %q", got)
		}
	}
	if own, err := os.ReadFile("/proc/self/cgroup"); err != nil || string(own) != "0::/fumehood/host\n" {
		t.Errorf("this process is in %q, %v", own, err)
	}
}
