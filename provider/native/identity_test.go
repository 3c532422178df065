//go:build linux && (amd64 || arm64)

package native_test

import (
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// TestProvider_Start_asDocker compares what programs rely on with the values of Docker's containers.
func TestProvider_Start_asDocker(t *testing.T) {
	t.Parallel()
	need(t)
	const (
		port = "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 80))'"
		ping = "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)'"
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
			if name != "user namespace" { // the kernel wants groups that exist there
				run(t, sb.As("tester"), ping)
			}
		})
	}
}
