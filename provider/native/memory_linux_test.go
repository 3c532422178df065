//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/test/tier"
)

// A process can hide from its sandbox's PID namespace in one below it, but not in one beside it.
func TestKillIn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.CI, errors.New("namespaces take root"))
	}
	first := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--kill-child", "sleep", "1000")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return cmd
	}
	nested := func(cmd *exec.Cmd) (pid int) {
		conformance.Eventually(t, "the process below runs", func() bool {
			all := descendants([]int{cmd.Process.Pid})
			pid = all[len(all)-1]
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // empty if it has ended
			return strings.TrimSpace(string(text)) == "sleep"
		})
		return pid
	}
	one, two := first(), first()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", one.Process.Pid), &st); err != nil {
		t.Fatal(err)
	}
	if killIn("pid", st.Ino, nested(two)) {
		t.Fatal("a process that is not in the namespace was killed")
	}
	if !killIn("pid", st.Ino, nested(one)) {
		t.Fatal("a process in a namespace below was not killed")
	}
	if err := one.Wait(); err == nil {
		t.Error("its parent has not seen it killed")
	}
}
