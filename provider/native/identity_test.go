//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// TestProvider_Start_asDocker compares what programs rely on with the values of Docker's containers.
func TestProvider_Start_asDocker(t *testing.T) {
	t.Parallel()
	need(t)
	const (
		port  = "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 80))'"
		ping  = "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)'"
		names = "python3 -c 'import os, socket; h = socket.gethostname(); " +
			"print(socket.gethostbyname(h) == \"127.0.1.1\", socket.getfqdn() == h, os.readlink(\"/etc/mtab\"))'"
	)
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, opts(t)), fumehood.Spec{Image: debian})
			for user, groups := range map[string]string{"": "0", "0": "0", "tester": "1000", "65534:1000": "1000"} {
				got := run(t, sb.As(user), "grep Groups /proc/self/status")
				if f := strings.Fields(got); len(f) != 2 || f[1] != groups {
					t.Errorf("user %q: got %q, want %s", user, got, groups)
				}
			}
			run(t, sb.As("tester"), port)
			if got := run(t, sb, names); got != "True True /proc/mounts" {
				t.Errorf("the host name, its canonical name and mtab: got %q", got)
			}
			if name != "runsc" && !cgroups.IsCgroup2UnifiedMode() { // gVisor has its own control groups
				run(t, sb, "grep -q cpuset /proc/self/mountinfo") // Java ignores all limits without it
			}
			if name != "user namespace" { // the kernel wants groups that exist there
				run(t, sb.As("tester"), ping)
			}
		})
	}
}

// TestProvider_Start_limits checks that programs do not get the limits of the process that starts the sandbox.
func TestProvider_Start_limits(t *testing.T) {
	for resource, soft := range map[int]uint64{unix.RLIMIT_CPU: 1e6, unix.RLIMIT_LOCKS: 1e6, unix.RLIMIT_MSGQUEUE: 1000} {
		var before unix.Rlimit
		if err := unix.Getrlimit(resource, &before); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: soft, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Setrlimit(resource, &before); err != nil {
				t.Error(err)
			}
		})
	}
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian})
	for _, user := range []string{"", "tester"} {
		got := run(t, sb.As(user), "ulimit -t; awk '/file locks/ {print $4} /msgqueue/ {print $4}' /proc/self/limits")
		if want := "unlimited\nunlimited\n819200"; got != want {
			t.Errorf("user %q: got %q, want %q", user, got, want)
		}
	}
}

// TestProvider_Start_scheduling checks that programs do not get a higher priority of the process that starts the
// sandbox, or its real-time policy, and that they keep a lower priority.
func TestProvider_Start_scheduling(t *testing.T) {
	need(t)
	for name, attr := range map[string]unix.SchedAttr{
		"real time":       {Policy: unix.SCHED_RR, Priority: 1},
		"higher priority": {Policy: unix.SCHED_NORMAL, Nice: -5},
		"lower priority":  {Policy: unix.SCHED_NORMAL, Nice: 3},
	} {
		for by, opts := range map[string]native.Options{"no runtime": {}, "runc": withRuntime(t, "runc")} {
			t.Run(name+", "+by, func(t *testing.T) {
				p := newProvider(t, opts)
				t.Cleanup(func() { schedule(t, unix.SchedAttr{Policy: unix.SCHED_NORMAL}) })
				schedule(t, attr)
				sb := start(t, p, fumehood.Spec{Image: debian})
				want := fmt.Sprintf("%d 0 0", max(0, attr.Nice))
				for _, pid := range []string{"self", "1"} {
					if got := run(t, sb, "cut -d ' ' -f 19,40,41 /proc/"+pid+"/stat"); got != want { // nice value, priority, policy
						t.Errorf("process %s: got %q, want %q", pid, got, want)
					}
				}
			})
		}
	}
}

// schedule sets the policy and priority of all threads of this process.
func schedule(t *testing.T, attr unix.SchedAttr) {
	t.Helper()
	attr.Size = unix.SizeofSchedAttr
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetAttr(tid, &attr, 0); errors.Is(err, unix.EPERM) {
			t.Skip("this machine lets no process have another priority")
		} else if err != nil && !errors.Is(err, unix.ESRCH) { // a thread that has ended
			t.Fatal(err)
		}
	}
}
