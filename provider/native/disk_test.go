//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// loops returns the loop devices whose file was in a folder.
func loops(t *testing.T, folder string) (found []string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(file), folder) { // it may be released meanwhile
			found = append(found, string(file))
		}
	}
	return found
}

// A writable layer has its size, in memory and on disk; a command that writes more gets ENOSPC, and the sandbox lives.
func TestLimits_Disk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits  fumehood.Limits
		loops   int
		users   bool
		runtime string
		compose string
	}{
		"memory":         {limits: fumehood.Limits{Memory: 64 << 20, Disk: 32 << 20}},
		"disk":           {limits: fumehood.Limits{Memory: 64 << 20, Disk: 40 << 20}, loops: 1},
		"user namespace": {limits: fumehood.Limits{Memory: 64 << 20, Disk: 40 << 20}, loops: 1, users: true},
		"project":        {limits: fumehood.Limits{Memory: 64 << 20, Disk: 40 << 20}, loops: 2, users: true, compose: twoWaiting},
		"runc":           {limits: fumehood.Limits{Memory: 64 << 20, Disk: 40 << 20}, loops: 1, runtime: "runc"},
		"crun":           {limits: fumehood.Limits{Memory: 64 << 20, Disk: 40 << 20}, loops: 1, runtime: "crun"},
		"runsc":          {limits: fumehood.Limits{Memory: 128 << 20, Disk: 80 << 20}, loops: 1, runtime: "runsc"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := native.Options{UserNamespace: c.users}
			if c.runtime != "" {
				opts = withRuntime(t, c.runtime)
			}
			t.Parallel()
			dir := t.TempDir()
			opts.StateDir = dir
			spec := fumehood.Spec{Image: busybox, Limits: c.limits}
			if c.compose != "" {
				spec.Image, spec.Compose = "", composeFile(t, c.compose)
			}
			sb := start(t, newProvider(t, opts), spec)
			if got := loops(t, dir); len(got) != c.loops {
				t.Errorf("loop devices: %v", got)
			}
			want := []string{"tmpfs", "ext4"}[min(c.loops, 1)]
			if got := sb.ServiceInfo(); got.Disk != c.limits.Disk || got.DiskOn != want {
				t.Errorf("its disk has %d bytes on %q, want %d on %q", got.Disk, got.DiskOn, c.limits.Disk, want)
			}
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "cat /dev/zero > /full"}})
			if err != nil || res.ExitCode == 0 || !strings.Contains(res.Stderr.Text(), "No space left on device") {
				t.Errorf("got %s %d %q: %v", res.Outcome, res.ExitCode, res.Stderr.Text(), err)
			}
			size := run(t, sb, "stat -c %s /full")
			var n int64
			if _, err := fmt.Sscan(size, &n); err != nil || n > c.limits.Disk || n < c.limits.Disk*8/10 {
				t.Errorf("%s bytes fit in %d: %v", size, c.limits.Disk, err)
			}
			err = sb.WriteFile(t.Context(), "/more", make([]byte, 1<<20), fumehood.WriteOptions{})
			conformance.WantError(t, err, fumehood.ErrLimit)
			if got := run(t, sb, "rm /full && echo again > /again && cat /again"); got != "again" {
				t.Errorf("got %q", got)
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "loop devices are free", func() bool { return len(loops(t, dir)) == 0 })
		})
	}
}

// The page cache of a disk counts against the memory limit, but must not exhaust it.
func TestLimits_Disk_beyondMemory(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, Disk: 400 << 20}})
	if got := run(t, sb, "dd if=/dev/zero of=/big bs=1M count=192 2>/dev/null && stat -c %s /big"); got != "201326592" {
		t.Errorf("got %q", got)
	}
}

// A disk takes from the host's only what is written. If that one is full, a write must fail when it is synced, not be lost.
func TestLimits_Disk_hostFull(t *testing.T) {
	t.Parallel()
	need(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conformance.Eventually(t, "unmounted", func() bool { return !errors.Is(unix.Unmount(dir, 0), unix.EBUSY) })
	})
	used := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Blocks-st.Bfree) * st.Bsize //nolint:gosec // at most 16 MiB
	}
	p := newProvider(t, native.Options{StateDir: filepath.Join(dir, "state")})
	before := used()
	sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, Disk: 200 << 20}})
	if n := used() - before; n > 1<<20 {
		t.Errorf("an empty disk takes %d bytes", n)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"dd", "if=/dev/zero", "of=/big", "bs=1M", "count=32", "conv=fsync"}})
	if err != nil || res.Outcome != fumehood.Exited || res.ExitCode == 0 || !strings.Contains(res.Stderr.Text(), "No space left on device") {
		t.Errorf("got %s %d %q: %v", res.Outcome, res.ExitCode, res.Stderr.Text(), err)
	}
	if n := used(); n < 15<<20 {
		t.Errorf("a full disk takes %d bytes", n)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	conformance.Eventually(t, "the blocks are free", func() bool { return used() <= before })
}

func TestLimits_Disk_many(t *testing.T) {
	tier.Need(t, tier.All)
	t.Parallel()
	dir := t.TempDir()
	p := newProvider(t, native.Options{StateDir: dir})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			sb, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 128 << 20, Disk: 1 << 30}})
			if err != nil {
				t.Error(err)
				return
			}
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"dd", "if=/dev/zero", "of=/x", "bs=1M", "count=20"}})
			if err != nil || !res.Success() {
				t.Errorf("%+v: %v", res, err)
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	conformance.Eventually(t, "loop devices are free", func() bool { return len(loops(t, dir)) == 0 })
}
