//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// stateDir is the state folder of a test, for several providers. Its path is longer than the address of a socket.
type stateDir string

func newStateDir(t *testing.T) stateDir {
	return stateDir(filepath.Join(t.TempDir(), strings.Repeat("long", 30)))
}

// keeper returns the provider that starts kept sandboxes. Nothing may be left in the folder when t ends.
func (d stateDir) keeper(t *testing.T) *native.Provider {
	return newProvider(t, native.Options{StateDir: string(d)})
}

// another returns a provider like that of another process.
func (d stateDir) another(t *testing.T) *native.Provider {
	t.Helper()
	p, err := native.New(t.Context(), native.Options{StateDir: string(d)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// open opens a sandbox like another process.
func (d stateDir) open(t *testing.T, name string) fumehood.Sandbox {
	t.Helper()
	sb, err := d.another(t).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// keep starts a kept sandbox, which must still exist when t ends. It is removed then.
func keep(t *testing.T, p *native.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	spec.Keep = true
	sb := start(t, p, spec)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { removeKept(ctx, t, p, sb.Info().Name) })
	return sb
}

func removeKept(ctx context.Context, t *testing.T, p *native.Provider, name string) {
	t.Helper()
	found, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{name}})
	if err != nil || !slices.ContainsFunc(found, func(l provider.Leftover) bool { return l.Sandbox == name && l.Removed }) {
		t.Errorf("the kept sandbox is not removed: %+v, %v", found, err)
	}
	gone(t, name)
}

// stateOf returns how Kept describes a sandbox; empty if it is not there.
func stateOf(t *testing.T, p *native.Provider, name string) string {
	t.Helper()
	all, err := p.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Name == name {
			return k.States["default"]
		}
	}
	return ""
}

// What another process froze does not answer. Kept shows it, and thawing makes it answer.
func TestProvider_Open_frozen(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	thaw, err := d.open(t, name).Freeze(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, p, name); state != "paused" {
		t.Errorf("listed as %q", state)
	}
	sb, ended := d.open(t, name), make(chan struct{})
	go func() {
		defer close(ended)
		answers(t, sb)
	}()
	select {
	case <-ended:
		t.Error("a frozen sandbox answers")
	case <-time.After(100 * time.Millisecond): // a command takes some milliseconds
	}
	if err := thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	if state := stateOf(t, p, name); state != "running" {
		t.Errorf("listed as %q", state)
	}
}

// After Stop nothing runs, but the files can be inspected.
func TestSandbox_Stop(t *testing.T) {
	t.Parallel()
	stopBombs(t)
}

func stopBombs(t *testing.T) {
	d := newStateDir(t)
	sb := keep(t, d.keeper(t), fumehood.Spec{Image: debian})
	bomb := "import os, signal\nfor s in (15, 1, 2): signal.signal(s, signal.SIG_IGN)\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass"
	var all []fumehood.Process
	for _, cmd := range []fumehood.Cmd{
		{Args: []string{"sleep", "1000"}}, {Args: []string{"sleep", "1000"}, User: "tester", Detach: true}, {Args: []string{"python3", "-c", bomb}, Detach: true},
	} {
		p, err := sb.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := sb.WriteFile(t.Context(), "/file", []byte("content"), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := sb.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if res, err := p.Wait(t.Context()); err != nil || res.Outcome == fumehood.Exited {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	again := d.open(t, sb.Info().Name)
	if got := run(t, again, "cat /file; grep -l 'sleep\\|python3' /proc/[0-9]*/comm 2>/dev/null | wc -l"); got != "content0" {
		t.Errorf("got %q", got)
	}
}

// The image of a kept sandbox stays, whoever cleans up.
func TestProvider_Cleanup_keptImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := native.Options{StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache")}
	p := newProvider(t, opts)
	sb := keep(t, p, fumehood.Spec{Image: busybox})
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := newProvider(t, native.Options{StateDir: filepath.Join(dir, "other"), CacheDir: opts.CacheDir})
	layers := func() int {
		if _, err := other.Cleanup(t.Context(), provider.CleanupOptions{Caches: true}); err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadDir(filepath.Join(opts.CacheDir, "images", "layers-2"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if layers() == 0 {
		t.Error("the layers are removed while the sandbox exists")
	}
	answers(t, stateDir(opts.StateDir).open(t, sb.Info().Name))
	dead := start(t, p, fumehood.Spec{Image: busybox, Keep: true}).Info().Name
	removeKept(t.Context(), t, p, dead)
	if layers() == 0 {
		t.Error("the layers are removed with another sandbox")
	}
}

// Programs in the sandbox can connect to its sockets. They get no answer, and do not keep hosts out.
func TestProvider_Open_attacked(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All) // they take the processors from other tests
	d := newStateDir(t)
	sb := keep(t, d.keeper(t), fumehood.Spec{Image: debian})
	const flood = `
import glob, os, socket
address = glob.glob('/.fumehood/host/*')[0]
held = []
for i in range(300):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(address)
    try: s.sendall(os.urandom(i))
    except OSError: pass
    held.append(s)
told = 0
for s in held:
    try: told += len(s.recv(1000))
    except OSError: pass
print(told, flush=True)
while True:
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(address)
    except OSError: pass
`
	for range 8 {
		p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", flood}})
		if err != nil {
			t.Fatal(err)
		}
		for c, err := range p.Follow(t.Context(), fumehood.Stdout, 0) {
			if err != nil || string(c.Data) != "0\n" {
				t.Errorf("it received %s bytes, %v", c.Data, err)
			}
			break
		}
	}
	for range 10 {
		if got := run(t, d.open(t, sb.Info().Name), "echo served"); got != "served" {
			t.Errorf("got %q", got)
		}
	}
	if got := run(t, sb, "rm -f /.fumehood/host/* 2>&1 | wc -l; touch /.fumehood/host/x 2>&1 | wc -l"); got != "1\n1" {
		t.Errorf("the sockets' folder can be changed: %q", got)
	}
}
