//go:build linux && (amd64 || arm64)

package native_test

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// isPowerless runs the test again as a root that lacks capabilities, as in many containers, and reports whether this is that
// process.
func isPowerless(t *testing.T) bool {
	t.Helper()
	const variable = "FUMEHOOD_TEST_POWERLESS"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), tier.Program(t, tier.CI, "setpriv"), "--bounding-set=-net_admin,-sys_admin", self, "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this program
	if flag.Lookup("update-promises").Value.String() == "true" {
		cmd.Args = append(cmd.Args, "-update-promises")
	}
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	tier.Again(t, cmd)
	return false
}

// A root without capabilities has sandboxes in user namespaces, with all users of its own.
func TestProvider_Start_powerless(t *testing.T) {
	t.Parallel()
	if !isPowerless(t) {
		return
	}
	p := newProvider(t, native.Options{AllowUnenforcedLimits: true})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	for script, want := range map[string]string{
		"awk '{print $1, $2, $3}' /proc/self/uid_map /proc/self/gid_map": "0 0 65536\n0 0 65536",
		"id -u; id -g":                             "0\n0",
		"stat -c %u:%g:%a /home/tester":            "1000:1000:755",
		"touch /q; chown 7:8 /q; stat -c %u:%g /q": "7:8",
	} {
		if got := run(t, sb, script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	if got := run(t, sb.As("tester"), "id -un; touch /etc/x 2>&1 || true"); got != "tester\ntouch: /etc/x: Permission denied" {
		t.Errorf("as another user: got %q", got)
	}
}

func TestProvider_Promises_powerless(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI)
	if !isPowerless(t) {
		return
	}
	promisesOf(t, conformance.Harness{
		Column: "native busybox root without capabilities", Users: conformance.Users{Name: "tester", UID: 1000, GID: 1000},
		Exceptions: map[string]conformance.Exception{"errors/forbidden file is ErrPermission": conformance.RootMayAll},
	}, busybox, false)
}
