package cli

import (
	"strings"
	"testing"

	_ "github.com/fumehood/fumehood/internal/lategc" // as in package main
)

// TestMain_collections shows that a short command ends before the first garbage collection.
func TestMain_collections(t *testing.T) {
	t.Parallel()
	cmd, _ := program(t, "version")
	cmd.Env = append(cmd.Env, "GODEBUG=gctrace=1", "GOGC=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "guest") || strings.Contains(string(out), "gc 1 @") {
		t.Errorf("%v\n%s", err, out)
	}
}
