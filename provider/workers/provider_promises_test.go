//go:build linux && (amd64 || arm64)

package workers_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
)

// broken is a project with a service whose program fails.
const broken = `
services:
  default: {image: ` + busybox + `, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db: {image: ` + busybox + `, command: [sh, -c, "echo last words; exit 3"], healthcheck: {test: "true", interval: 1h}}
`

// leased replaces the promises about a reaper and cleanups: of a killed process, the worker removes all sandboxes.
var leased = conformance.ProviderException{
	Reason: "no reaper; the worker removes sandboxes 5 s after their process has died",
	Check: func(t *testing.T, c *conformance.ProviderCase) {
		for _, phase := range []string{"command", "files", "start"} {
			name := "promise-" + strings.ToLower(rand.Text()[:12])
			conformance.StartOwner(t, phase, c.Dir, name, false)()
			conformance.Eventually(t, "the worker removes the sandbox", func() bool { return !c.Exists(t, name) })
		}
	},
}

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "workers provider",
		Exceptions: map[string]conformance.ProviderException{
			"killed/reaper removes all": leased, "killed/cleanup removes all without a reaper": leased,
		},
		Spec: fumehood.Spec{Image: busybox}, Failing: fumehood.Spec{Compose: &fumehood.Compose{Content: broken}},
		New: func(t *testing.T) conformance.Subject {
			s := serve(t, "--allow-kept", "--allow-unsafe", "--allow-egress", "--allow-host-path", os.TempDir())
			return conformance.Subject{
				Provider: newProvider(t, s.url), Dir: s.dir,
				Another: func(t *testing.T) fumehood.Provider { return newProvider(t, s.url) },
				Guests: func(t *testing.T, name string) int {
					sockets, err := os.ReadDir(filepath.Join(s.state, name, "sockets-default"))
					if err != nil {
						t.Fatal(err)
					}
					return len(sockets)
				},
				Exists: func(_ *testing.T, name string) bool {
					_, err := os.Lstat(filepath.Join(s.state, name))
					return err == nil
				},
				Hinder: func(t *testing.T, sb fumehood.Sandbox) func() {
					return busy(t, filepath.Join(s.state, sb.Info().Name, "busy"))
				},
			}
		},
	})
}

// busy makes a folder that cannot be removed until release is called.
func busy(t *testing.T, dir string) (release func()) {
	t.Helper()
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
}
