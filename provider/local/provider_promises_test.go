package local_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/local"
)

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	exceptions := conformance.NoOpener("kept sandboxes are only folders")
	maps.Copy(exceptions, conformance.NoProjects("no images"))
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column:  "local provider",
		Failing: fumehood.Spec{Dir: "/no/such/dir"}, Exceptions: exceptions,
		New: func(t *testing.T) conformance.Subject {
			state := filepath.Join(t.TempDir(), "state")
			return conformance.Subject{
				Provider: newProvider(t, local.Options{StateDir: state}), Hinder: hinder(state),
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
