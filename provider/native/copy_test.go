//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// The kernel does not mount an overlay of an overlay of an overlay. The images are copied then. The overlays are in a
// separate process's mount namespace.
func TestProvider_Start_copies(t *testing.T) {
	t.Parallel()
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("mounts take root")
	}
	if !tier.Inside(t, syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	below := filepath.Join(dir, "empty")
	for _, name := range []string{"one", "two"} {
		base := filepath.Join(dir, name)
		for _, folder := range []string{below, base + "/upper", base + "/work", base + "/merged"} {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		options := "lowerdir=" + below + ",upperdir=" + base + "/upper,workdir=" + base + "/work"
		if err := unix.Mount("overlay", base+"/merged", "overlay", 0, options); err != nil {
			t.Fatal(err)
		}
		below = base + "/merged"
	}
	var log bytes.Buffer
	p := newProvider(t, native.Options{CacheDir: filepath.Join(below, "cache"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Disk: 32 << 20}})
		if got := run(t, sb, "rm /bin/true && echo new >/etc/new && cat /etc/new && id -un tester && df -m / | tail -n1 | awk '{print $2}'"); got != "new\ntester\n32" {
			t.Errorf("got %q", got)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "each sandbox has a copy"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}
