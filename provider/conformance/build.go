package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// BuildProbe builds the probe, static, for this machine, and returns its path on the host. The file is
// removed when t ends. Where the environment variable FUMEHOOD_PROBE names one that was built before, for
// a user who has no Go, that is returned instead.
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
		"github.com/fumehood/fumehood/provider/conformance/probe/cmd/fumehood-probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, msg)
	}
	return out
}
