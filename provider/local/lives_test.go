package local_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/test/lifetest"
)

// Golden files have the journal of the main lives of a sandbox.
func TestLives(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the commands need a shell")
	}
	for life, c := range map[string]struct {
		run  func(*testing.T, fumehood.Provider, *lifetest.Record, fumehood.Spec)
		spec fumehood.Spec
	}{
		"run":    {lifetest.Run, fumehood.Spec{Name: "run"}},
		"kept":   {lifetest.CloseKept, fumehood.Spec{Name: "kept"}},
		"failed": {lifetest.FailStart, fumehood.Spec{Name: "failed", Dir: "/no/such/dir"}},
	} {
		t.Run(life, func(t *testing.T) {
			t.Parallel()
			state := filepath.Join(t.TempDir(), "state")
			r := lifetest.New(state, "STATE")
			c.run(t, newProvider(t, local.Options{StateDir: state}), r, c.spec)
			r.Check(t, life)
		})
	}
}
