//go:build linux && (amd64 || arm64)

package native_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/tier"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// runtimes are the OCI runtimes of the tests, each with the smallest tier in which it must be installed.
var runtimes = map[string]tier.Tier{"runc": tier.CI, "crun": tier.All, "runsc": tier.All}

// withRuntime returns options for a runtime. It skips t in smaller tiers than the runtime's.
func withRuntime(t *testing.T, name string) native.Options {
	t.Helper()
	tier.Need(t, runtimes[name])
	if name == "runsc" { // scripts/ensure-runsc builds it
		if built, err := filepath.Abs("../../bin/runsc"); err == nil {
			if _, err := os.Stat(built); err == nil {
				return native.Options{Runtime: built}
			}
		}
	}
	if _, err := exec.LookPath(name); err != nil {
		tier.Missing(t, runtimes[name], fmt.Errorf("the test needs a runtime: %w", err))
	}
	return native.Options{Runtime: name}
}

// TestRuntime_Promises are the columns of the runtimes in docs/promises.json.
func TestRuntime_Promises(t *testing.T) {
	t.Parallel()
	need(t)
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	for name := range runtimes {
		column := "native " + name + " debian user"
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, withRuntime(t, name))
			const home = "/home/tester"
			conformance.Run(t, conformance.Harness{
				Column: column, Probe: home + "/probe", Users: conformance.Users{Name: "daemon", UID: 1, GID: 1},
				Exceptions: conformance.NoStop("sandboxes cannot be kept"),
				Start: func(t *testing.T) fumehood.Sandbox {
					sb := start(t, p, fumehood.Spec{Image: debian, User: "tester", Dir: home})
					if err := sb.WriteFile(t.Context(), home+"/probe", program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
						t.Fatal(err)
					}
					return sb
				},
			})
		})
	}
}
