//go:build linux && (amd64 || arm64)

package native_test

import (
	"testing"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

func TestExec_manyAtOnce(t *testing.T) {
	t.Parallel()
	const commands = 60
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 2*commands + 10}})
	conformance.CheckManyCommands(t, sb, commands)
}

func TestExec_processLimit(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 100}})
	conformance.CheckProcessLimit(t, sb, 100, "", "nobody")
}

// Programs have their limits, and the sandbox shows them, apart from what runs them.
func TestExec_divided(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	spec := fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 60}}
	opened := again(t, p, keep(t, p, spec))
	for _, sb := range []fumehood.Sandbox{start(t, p, spec), opened} {
		conformance.Eventually(t, "only the two processes of the command count", func() bool { // not what starts it, once that has moved back
			return run(t, sb, "cat /sys/fs/cgroup/pids.current /sys/fs/cgroup/pids/pids.current 2>/dev/null; true") == "2"
		})
		if got := run(t, sb.As("tester"), "cat /proc/self/cgroup; grep -o ' / /sys/fs/cgroup/code ' /proc/self/mountinfo || true"); cgroups.IsCgroup2UnifiedMode() && got != "0::/\n / /sys/fs/cgroup/code " {
			t.Errorf("group: %q", got)
		}
		if got := run(t, sb, "cd /sys/fs/cgroup; cat memory.max pids.max cpu.max memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us 2>/dev/null || true"); got != "67108864\n60\n100000 100000" && got != "67108864\n60\n100000" {
			t.Errorf("limits: %q", got)
		}
		res, err := sb.As("tester").Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "(while :; do :; done) & wait"}, CPUTime: 300 * time.Millisecond, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.CPUTimeExceeded {
			t.Errorf("%+v, %v", res, err)
		}
		thaw, err := sb.Freeze(t.Context())
		if err == nil {
			err = thaw(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestKillAll(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	t.Run("guest", func(t *testing.T) {
		t.Parallel()
		conformance.CheckKillAll(t, start(t, p, fumehood.Spec{Image: busybox}), nil, "", "nobody")
	})
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		conformance.CheckKillAll(t, start(t, p, fumehood.Spec{Image: busybox, User: "nobody"}), nil, "", "root")
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		conformance.CheckKillAll(t, again(t, p, keep(t, p, fumehood.Spec{Image: busybox})), nil, "", "nobody")
	})
	t.Run("own program", func(t *testing.T) {
		t.Parallel()
		sb := start(t, p, fumehood.Spec{Compose: &fumehood.Compose{Content: `
services:
  default: {image: ` + busybox + `, command: [sh, -c, "setsid sleep 1001 & sleep 1002"]}
  other: {image: ` + busybox + `, command: [sleep, "1000"]}`}})
		other, err := sb.Lookup("other")
		if err != nil {
			t.Fatal(err)
		}
		conformance.CheckKillAll(t, sb, other, "", "nobody")
		if got := run(t, sb, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 100[12]' | sort -u | wc -l"); got != "2" {
			t.Errorf("the service's own program has %s processes", got)
		}
	})
}

func TestExec_forkBomb(t *testing.T) {
	for name, bomb := range conformance.ForkBombs {
		t.Run(name, func(t *testing.T) {
			if name != "holding" {
				tier.Need(t, tier.All) // it takes the processors from all other tests
			}
			sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian})
			conformance.CheckForkBomb(t, sb, fumehood.DefaultPIDs, bomb, "")
		})
	}
}
