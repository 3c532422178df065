//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"testing"

	"github.com/fumehood/fumehood/provider/native"
)

func TestMain(m *testing.M) {
	native.RunReaper()
	if phase := os.Getenv(phaseVar); phase != "" {
		killedOwner(phase)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
