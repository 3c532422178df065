//go:build linux && (amd64 || arm64)

package native_test

import (
	"testing"

	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/native"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	need(t)
	want := map[string]provider.Status{}
	if _, err := native.NetworkHelper(); err != nil {
		want["network"] = provider.StatusNote
	}
	checkDiagnosis(t, want)
}

func TestDiagnose_rootless(t *testing.T) {
	t.Parallel()
	asUser(t, func(t *testing.T) {
		checkDiagnosis(t, map[string]provider.Status{"users": provider.StatusWarn, "control groups": provider.StatusWarn, "network": provider.StatusNote})
	})
}

// checkDiagnosis checks that sandboxes can work on this machine, and the checks with another result than OK.
func checkDiagnosis(t *testing.T, want map[string]provider.Status) {
	t.Helper()
	seen := 0
	ok := native.Diagnose(func(c provider.Check) {
		seen++
		if w, other := want[c.Name]; other && c.Status != w || !other && c.Status != provider.StatusOK || c.Detail == "" {
			t.Errorf("got %+v", c)
		}
		if c.Status == provider.StatusWarn && c.Hint == "" {
			t.Errorf("no hint: %+v", c)
		}
	})
	if !ok || seen != 9 {
		t.Errorf("%v after %d checks", ok, seen)
	}
}
