//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/test/tier"
)

// A process whose first thread has exited is still one of the sandbox's.
func TestCgroup_processes_threadExited(t *testing.T) {
	t.Parallel()
	_, sb, inside := startInside(t, "fumehood-test/python")
	program := "import ctypes, platform, threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n" +
		"ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)"
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", program}}); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the process without a first thread is found", func() bool {
		pids, err := inside.services[0].cgroup.processes()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(pids, func(pid int) bool {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // empty if it has ended
			return strings.Contains(string(text), "(python3) Z")
		})
	})
}

// busyGroup cannot be frozen at first, like a control group of version 1 on a busy machine.
type busyGroup struct {
	cgroups.Manager
	attempts int
}

func (g *busyGroup) Freeze(state cgroups.FreezerState) error {
	if g.attempts++; g.attempts == 1 {
		return errors.New("unable to freeze")
	}
	return g.Manager.Freeze(state)
}

func TestService_killAll_busy(t *testing.T) {
	t.Parallel()
	_, sb, inside := startInside(t, "fumehood-test/busybox")
	s := inside.services[0]
	s.cgroup.Manager = &busyGroup{Manager: s.cgroup.Manager}
	sleep, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.killAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := sleep.Wait(t.Context()); err != nil || res.Outcome == fumehood.Exited {
		t.Errorf("got %+v, %v", res, err)
	}
}

// undividing are what keeps a sandbox's group of version 2 from being divided.
var undividing = map[string]func(group string) error{
	"no group": func(group string) error { return cgroups.WriteFile(group, "cgroup.max.descendants", "0") },
	"no entry": func(group string) error { // as where the kernel checks the rights of the guest
		code := filepath.Join(group, codeGroup)
		return errors.Join(os.Mkdir(code, 0o755), unix.Mount("/dev/full", filepath.Join(code, "cgroup.threads"), "", unix.MS_BIND, "")) //nolint:gosec // as all control groups
	},
	"no exit": func(group string) error {
		return unix.Mount("/dev/full", filepath.Join(group, "cgroup.threads"), "", unix.MS_BIND, "")
	},
}

// A sandbox whose control group cannot be divided has its limits nevertheless.
func TestCgroup_undivide(t *testing.T) {
	if !cgroups.IsCgroup2UnifiedMode() || os.Geteuid() != 0 {
		t.Skip("needs version 2 of control groups, and root")
	}
	for name, prevent := range undividing {
		t.Run(name, func(t *testing.T) {
			if tier.Inside(t, syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}) {
				checkUndivided(t, prevent)
			}
		})
	}
}

func checkUndivided(t *testing.T, prevent func(group string) error) {
	const image = "fumehood-test/busybox"
	states := filepath.Join(t.TempDir(), "state")
	p := newInside(t, states, image)
	group := filepath.Join(cgroupRoot, cgroupParent, cgroupName(filepath.Join(states, "whole")))
	if err := errors.Join(os.MkdirAll(group, 0o755), prevent(group)); err != nil { //nolint:gosec // as all control groups
		t.Fatal(err)
	}
	sb, err := p.Start(t.Context(), fumehood.Spec{Name: "whole", Image: image, Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 60}})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "nobody"} {
		res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "cd /sys/fs/cgroup; cat /proc/self/cgroup memory.max pids.max cpu.max; ls -d code; grep -c cgroup2 /proc/self/mountinfo"}})
		if got := res.Stdout.Text(); err != nil || got != "0::/\n67108864\n60\n100000 100000\n1\n" {
			t.Errorf("user %q: %q, %v", user, got, err)
		}
	}
	for name, want := range map[string]string{"pids.max": "60\n", "cpu.max": "100000 100000\n"} {
		if got, err := os.ReadFile(filepath.Join(group, name)); string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
