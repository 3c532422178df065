//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

func TestMain(m *testing.M) {
	native.RunReaper()
	ctx := context.Background()
	if conformance.Owner(ctx, os.Stdout, fumehood.Spec{Image: busybox}, func(dir string, reaper bool) (fumehood.Provider, error) {
		opts := native.Options{StateDir: dir, NoReaper: !reaper}
		if cache := filepath.Join(filepath.Dir(dir), "cache"); exists(cache) {
			opts.CacheDir = cache
		}
		return native.New(ctx, opts)
	}) {
		os.Exit(1)
	}
	if len(os.Args) == 2 && os.Args[1] == "share" { // a guest that sends a descriptor with too few bytes
		if unix.Sendmsg(1, []byte{0}, unix.UnixRights(3), nil, 0) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if phase := os.Getenv(phaseVar); phase != "" {
		killedOwner(phase)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
