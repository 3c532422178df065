//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// hideGroups are the ways in which a container may have no control groups for its root.
var hideGroups = map[string]func() error{
	"read-only": func() error {
		return unix.MountSetattr(unix.AT_FDCWD, cgroupRoot, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	},
	"missing": func() error { return unix.Mount("tmpfs", cgroupRoot, "tmpfs", 0, "") },
}

// withoutGroups runs test as root where control groups cannot be made, in processes of their own.
func withoutGroups(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for name := range hideGroups {
		t.Run(name, func(t *testing.T) {
			if groupsHidden(t, name) {
				test(t)
			}
		})
	}
}

// groupsHidden hides the control groups in one of the ways, in a process of its own, and reports whether this is that process.
func groupsHidden(t *testing.T, way string) bool {
	t.Helper()
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if !tier.Inside(t, syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}) {
		return false
	}
	if err := hideGroups[way](); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestProvider_Start_noGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newProvider(t, native.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		sb := start(t, p, fumehood.Spec{Image: busybox})
		start(t, p, fumehood.Spec{Image: busybox})
		if got := strings.Join(sb.Info().Unenforced, " "); got != "memory swap pids" {
			t.Errorf("not enforced: %q", got)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "neither processors nor processes are limited") {
			t.Errorf("the log has %s", got)
		}
		if got := run(t, sb.As("tester"), "id -un; ls -A /sys/fs/cgroup"); got != "tester" {
			t.Errorf("got %q", got)
		}
		conformance.NoCPUTime(t, sb)
		_, err := sb.Freeze(t.Context())
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		for name, spec := range map[string]fumehood.Spec{
			"memory": {Limits: fumehood.Limits{Memory: 64 << 20}}, "cpus": {Limits: fumehood.Limits{CPUs: 1}}, "pids": {Limits: fumehood.Limits{PIDs: 60}},
			"runtime": {Runtime: "runc"},
		} {
			spec.Image = busybox
			_, err := p.Start(t.Context(), spec)
			conformance.WantError(t, err, fumehood.ErrUnsupported)
			typed, ok := errors.AsType[*fumehood.Error](err)
			if !ok || typed.Hint == "" || !strings.Contains(err.Error(), "without control groups") || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func TestLimits_noGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, func(t *testing.T) {
		p := newProvider(t, native.Options{AllowUnenforcedLimits: true})
		sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 60}})
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"tail", "-c", "200000000", "/dev/zero"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.OutOfMemory {
			t.Errorf("%v, %+v", err, res)
		}
		p = newProvider(t, native.Options{UserNamespace: true})
		sb = start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 60}})
		for _, user := range []string{"0", "tester"} {
			res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "for i in $(seq 100); do sleep 9 & done"}, Timeout: time.Minute})
			if err != nil || res.Success() || !strings.Contains(res.Stderr.Text(), "fork") {
				t.Errorf("%s: there is no limit of processes: %v, %+v: %s", user, err, res, res.Stderr.Text())
			}
		}
	})
}

func TestPod_noGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, func(t *testing.T) {
		p := newProvider(t, native.Options{AllowUnenforcedLimits: true})
		openPod(t, p)
		stopPrograms(t, p)
	})
}

func TestNetwork_noGroups(t *testing.T) {
	t.Parallel()
	needNetwork(t)
	withoutGroups(t, func(t *testing.T) {
		sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Network: bridge})
		if got := run(t, sb, "cat /sys/class/net/eth0/operstate /sys/class/net/eth0/mtu | tail -n 1"); got != "65520" {
			t.Errorf("got %q", got)
		}
	})
}

func TestProvider_Start_keptNoGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, keptAlone)
}

func TestProvider_Open_ownerKilled_noGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, openOwnerKilled)
}

func TestProvider_killed_noGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, func(t *testing.T) {
		killOwners(t, native.Options{}, tier.Pick(t, 9, 18, 180), []string{"frozen"})
	})
}

func TestDiagnose_noGroups(t *testing.T) {
	t.Parallel()
	withoutGroups(t, func(t *testing.T) {
		want := map[string]provider.Status{"control groups": provider.StatusWarn}
		if _, err := native.NetworkHelper(); err != nil {
			want["network"] = provider.StatusNote
		}
		checkDiagnosis(t, want)
	})
}

// A process without control groups neither uses nor removes a kept sandbox of root that has some.
func TestProvider_Open_noGroups(t *testing.T) {
	t.Parallel()
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	state := os.Getenv(dirVar)
	if state == "" {
		d := newStateDir(t)
		sb := keep(t, d.keeper(t), fumehood.Spec{Image: busybox, Name: "kept"})
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), dirVar+"="+string(d))
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		tier.Again(t, cmd)
		run(t, sb, "true")
		return
	}
	if err := hideGroups["read-only"](); err != nil {
		t.Fatal(err)
	}
	p := stateDir(state).another(t)
	_, err := p.Open(t.Context(), "kept")
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{"kept"}}); err == nil {
		t.Error("the sandbox is removed")
	}
}

func TestProvider_Promises_noGroups(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI)
	if !groupsHidden(t, "read-only") {
		return
	}
	promisesOf(t, conformance.Harness{
		Column: "native busybox root, no control groups", Users: conformance.Users{Name: "tester", UID: 1000, GID: 1000},
		Exceptions: map[string]conformance.Exception{"errors/forbidden file is ErrPermission": conformance.RootMayAll},
	}, busybox, false)
}
