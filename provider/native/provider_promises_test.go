//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
)

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	need(t)
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "native provider",
		Spec:   fumehood.Spec{Image: busybox}, Failing: fumehood.Spec{Compose: composeFile(t, broken)},
		New: func(t *testing.T) conformance.Subject {
			d := newStateDir(t)
			state := string(d)
			s := conformance.Subject{
				Provider: d.keeper(t), Dir: state,
				Another: func(t *testing.T) fumehood.Provider { return d.another(t) },
				Guests: func(t *testing.T, name string) int {
					sockets, err := os.ReadDir(filepath.Join(state, name, "sockets-default"))
					if err != nil {
						t.Fatal(err)
					}
					return len(sockets)
				},
				Exists: func(_ *testing.T, name string) bool { return exists(filepath.Join(state, name)) },
			}
			if os.Geteuid() == 0 {
				s.Hinder = func(t *testing.T, sb fumehood.Sandbox) func() {
					return busy(t, filepath.Join(state, sb.Info().Name, "busy"))
				}
			}
			return s
		},
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
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
