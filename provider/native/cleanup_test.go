//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// Go's runtime may start a thread of a worker while the worker is in the group for programs. The thread stays there, and its process
// ends with the sandbox, which the test's end removes as another process does.
func TestProvider_Cleanup_threadInCode(t *testing.T) {
	t.Parallel()
	if cgroups.IsCgroup2UnifiedMode() {
		t.Skip("version 2 has no groups for single threads")
	}
	sb := keep(t, newStateDir(t).keeper(t), fumehood.Spec{Image: busybox})
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	groups, err := filepath.Glob(cgroupRoot + "/pids/fumehood/" + sb.Info().Name + "-*")
	if err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	tasks, err := os.ReadFile(groups[0] + "/tasks")
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for thread := range strings.FieldsSeq(string(tasks)) {
		status, err := os.ReadFile("/proc/" + thread + "/status")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(status), "\nTgid:\t"+thread+"\n") { // a process's first thread
			continue
		}
		if err := os.WriteFile(groups[0]+"/code/tasks", []byte(thread), 0); err != nil {
			t.Fatal(err)
		}
		moved++
	}
	if moved == 0 {
		t.Fatal("no thread is to move")
	}
}

// What a killed build left is removed by a cleanup that keeps caches, and by the next start of a sandbox.
func TestProvider_Cleanup_unfinished(t *testing.T) {
	t.Parallel()
	opts := native.Options{CacheDir: filepath.Join(t.TempDir(), "cache")}
	p := newProvider(t, opts)
	stores, err := filepath.Glob(filepath.Join(opts.CacheDir, "*", "tmp"))
	if err != nil || len(stores) != 1 {
		t.Fatal(stores, err)
	}
	unfinished := filepath.Join(stores[0], "build-killed")
	leave := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(unfinished, "context"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	gone := func() bool {
		_, err := os.Lstat(unfinished)
		return errors.Is(err, fs.ErrNotExist)
	}
	leave()
	for _, c := range []struct {
		opts    provider.CleanupOptions
		removed bool
	}{
		{provider.CleanupOptions{DryRun: true}, false},
		{provider.CleanupOptions{}, true},
	} {
		all, err := p.Cleanup(t.Context(), c.opts)
		found := false
		for _, l := range all {
			if strings.HasPrefix(l.Name, "build-killed") {
				found = l.Remove && l.Removed == c.removed
			} else if l.Removed {
				t.Errorf("%+v: removed %s %s", c.opts, l.Kind, l.Name)
			}
		}
		if err != nil || !found || gone() != c.removed {
			t.Errorf("%+v: got %+v, error %v", c.opts, all, err)
		}
	}
	leave()
	sb := start(t, p, fumehood.Spec{Image: busybox})
	conformance.Eventually(t, "the start removes it", gone)
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
