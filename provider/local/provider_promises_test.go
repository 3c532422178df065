package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/local"
)

// The promises about providers: what Close leaves.
func TestRunProvider(t *testing.T) {
	t.Parallel()
	conformance.RunProvider(t, conformance.ProviderHarness{
		Failing: fumehood.Spec{Dir: "/no/such/dir"},
		New: func(t *testing.T) conformance.Subject {
			state := filepath.Join(t.TempDir(), "state")
			return conformance.Subject{
				Provider: newProvider(t, local.Options{StateDir: state}), Hinder: hinder(state),
				Exists: func(_ *testing.T, name string) bool {
					_, err := os.Lstat(filepath.Join(state, name))
					return err == nil
				},
			}
		},
	})
}
