//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// The folders of a provider are not mounted, also if they are not the default ones.
func TestProvider_Start_mountsState(t *testing.T) {
	t.Parallel()
	need(t)
	shared, err := os.MkdirTemp("/dev/shm", "fumehood-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shared) })
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	state, cache := filepath.Join(shared, "state"), filepath.Join(dir, "real", "cache")
	err = os.MkdirAll(cache, 0o700)
	if err == nil {
		err = os.Symlink("real", link)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := native.New(t.Context(), native.Options{StateDir: state, CacheDir: filepath.Join(link, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{state, shared, filepath.Join(state, "box"), cache, filepath.Join(cache, "images"), link, dir} {
		_, err := p.Start(t.Context(), fumehood.Spec{Image: "oci:missing", Mounts: []fumehood.Mount{{Host: path, Container: "/m"}}})
		conformance.WantError(t, err, fumehood.ErrConfig)
		if !strings.Contains(err.Error(), "this is not safe: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
