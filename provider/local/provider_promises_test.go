package local_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/local"
)

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	exceptions := conformance.NoOpener("kept sandboxes are only folders")
	maps.Copy(exceptions, conformance.NoReaper("the folder stays", func(t *testing.T, c *conformance.ProviderCase, name string) {
		self, err := owner.Self()
		if err != nil {
			t.Fatal(err)
		}
		self.Start++ // an ended process with the same PID
		folder := filepath.Join(c.Dir, name)
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "owner"), []byte(self.String()), 0o600)); err != nil {
			t.Fatal(err)
		}
	}))
	maps.Copy(exceptions, conformance.NoProjects("no images"))
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column:  "local provider",
		Failing: fumehood.Spec{Dir: "/no/such/dir"}, Exceptions: exceptions,
		New: func(t *testing.T) conformance.Subject {
			state := filepath.Join(t.TempDir(), "state")
			return conformance.Subject{
				Provider: newProvider(t, local.Options{StateDir: state}), Dir: state, Hinder: hinder(state),
				Another: func(t *testing.T) fumehood.Provider {
					p, err := local.New(local.Options{StateDir: state})
					if err != nil {
						t.Fatal(err)
					}
					return p
				},
				Exists: func(_ *testing.T, name string) bool {
					_, err := os.Lstat(filepath.Join(state, name))
					return err == nil
				},
			}
		},
	})
}
