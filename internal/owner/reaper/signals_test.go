//go:build unix

package reaper

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestReaper_ignoresSignals(t *testing.T) {
	o := newOwner(t)
	r := o.reaper()
	eventually(t, "the reaper has taken its name", func() bool {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", r.Pid))
		return strings.TrimSpace(string(comm)) == processName
	})
	if sid, err := syscall.Getpgid(r.Pid); err != nil || sid != r.Pid {
		t.Errorf("its process group is %d: %v", sid, err)
	}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := r.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o.leftItsJobs()
}
