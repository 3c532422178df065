//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
)

// A process whose first thread has exited is still one of the sandbox's.
func TestCgroup_processes_threadExited(t *testing.T) {
	t.Parallel()
	p, sb := startInside(t, "fumehood-test/python")
	program := "import ctypes, platform, threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n" +
		"ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)"
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", program}}); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the process without a first thread is found", func() bool {
		var pids []int
		for s := range p.boxes {
			var err error
			if pids, err = s.services[0].cgroup.processes(); err != nil {
				t.Fatal(err)
			}
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
	p, sb := startInside(t, "fumehood-test/busybox")
	var s *service
	for sb := range p.boxes {
		s = sb.services[0]
	}
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
