package docker

import (
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood/test/filetest"
)

func TestBroadcastCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		all, def string
		ok       bool
		status   Status
	}{
		"none":            {"0\n", "0\n", true, Warn},
		"loose":           {"2\n", "0\n", true, OK},
		"strict":          {"1\n", "0\n", true, OK},
		"of new ones":     {"0\n", "1\n", true, OK},
		"what is no file": {"", "", false, ""},
	} {
		files := map[string]string{}
		if c.all != "" {
			files = map[string]string{"all/rp_filter": c.all, "default/rp_filter": c.def}
		}
		got, ok := broadcastCheck(filetest.Lay(t, files))
		if ok != c.ok || got.Status != c.status {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
	if _, ok := broadcastCheck(filepath.Join(t.TempDir(), "none")); ok {
		t.Error("missing settings")
	}
}
