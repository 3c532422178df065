package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// BuildProbe builds a static probe program for this machine and returns its path on the host. The file is removed when
// t ends. If the environment variable FUMEHOOD_PROBE is set, BuildProbe returns its value instead: the path of a probe
// that was built before, for users without Go.
func BuildProbe(t testing.TB) string {
	t.Helper()
	if built := os.Getenv("FUMEHOOD_PROBE"); built != "" {
		return built
	}
	out := filepath.Join(t.TempDir(), "fumehood-probe")
	if runtime.GOOS == "windows" {
		out += ".exe"
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out,
		"github.com/fumehood/fumehood/test/probe/cmd/fumehood-probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, msg)
	}
	return out
}
