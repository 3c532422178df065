//go:build linux && (amd64 || arm64)

package native_test

import (
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
	for name, opts := range map[string]func(t *testing.T) native.Options{
		"root":           func(*testing.T) native.Options { return native.Options{} },
		"user namespace": func(*testing.T) native.Options { return native.Options{UserNamespace: true} },
		"runc":           func(t *testing.T) native.Options { return withRuntime(t, "runc") },
		"runsc":          func(t *testing.T) native.Options { return withRuntime(t, "runsc") },
	} {
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
