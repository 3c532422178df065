//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
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

// rejoined returns a detached command of an opened sandbox.
func rejoined(t *testing.T, sb fumehood.Sandbox, id int) fumehood.Process {
	t.Helper()
	if err := sb.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Process(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stateOf returns how Kept describes a sandbox; empty if it is not there.
func stateOf(t *testing.T, p *native.Provider, name string) (state string, expires time.Time) {
	t.Helper()
	all, err := p.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Name == name {
			return k.States["default"], k.Expires
		}
	}
	return "", time.Time{}
}

// Detached commands of each user go on when the process that started them has closed the sandbox, and others find them.
func TestProvider_Open(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	sb := keep(t, d.keeper(t), fumehood.Spec{Image: debian, Env: map[string]string{"A": "b"}, Labels: map[string]string{"label": "value"}})
	name := sb.Info().Name
	ids := map[string]int{}
	for _, user := range []string{"", "tester"} {
		p, err := sb.Start(t.Context(), fumehood.Cmd{
			Args:   []string{"sh", "-c", `echo $(id -un) $A; echo warned >&2; while read -r line; do echo "got $line"; done; exit 7`},
			Detach: true, StdinPipe: true, User: user,
		})
		if err == nil {
			_, err = io.WriteString(p, "one\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[user] = p.Info().ID
	}
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	if got := run(t, sb, "cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep || true"); got != "1" {
		t.Errorf("%s commands are found", got)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, other := d.open(t, name), d.open(t, name)
	if info := again.Info(); info.Labels["label"] != "value" || !slices.Equal(info.EnvNames, []string{"A"}) || info.Provider != "native" || info.Services[0].Image != debian {
		t.Errorf("it is described as %+v", info)
	}
	conformance.Eventually(t, "the command that is not detached ends", func() bool {
		return run(t, again, "cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep || true") == "0"
	})
	for user, id := range ids {
		first, second := rejoined(t, again, id), rejoined(t, other, id)
		if _, err := io.WriteString(first, "two\n"); err != nil {
			t.Fatal(err)
		}
		if err := first.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		who := map[string]string{"": "root", "tester": "tester"}[user]
		for _, p := range []fumehood.Process{first, second} {
			res, err := p.Wait(t.Context())
			if err != nil || res.ExitCode != 7 || res.Stdout.Text() != who+" b\ngot one\ngot two\n" || res.Stderr.Text() != "warned\n" {
				t.Errorf("%q: %+v, %v", user, res, err)
			}
		}
		if err := errors.Join(first.Forget(t.Context()), other.RefreshProcesses(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if left := other.Processes(); len(left) != 0 {
		t.Errorf("%d commands are listed after they were forgotten", len(left))
	}
	if got := run(t, again.As("1"), "id -u; echo $A"); got != "1\nb" {
		t.Errorf("as another user: %q", got)
	}
	if err := d.another(t).Logs(t.Context(), name, "", provider.LogOptions{}, func(fumehood.Stream, []byte) {}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("logs: %v", err)
	}
}

// Several processes may start the resident guests of the same users at the same time.
func TestProvider_Open_concurrent(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	name := keep(t, d.keeper(t), fumehood.Spec{Image: busybox}).Info().Name
	var all sync.WaitGroup
	const hosts, users = 4, 3
	for range hosts {
		sb := d.open(t, name)
		for user := range users {
			all.Go(func() {
				p, err := sb.As("100"+string(rune('0'+user))).Start(t.Context(), fumehood.Cmd{Args: []string{"id", "-u"}, Detach: true})
				if err != nil {
					t.Error(err)
					return
				}
				if res, err := p.Wait(t.Context()); err != nil || res.Stdout.Text() != "100"+string(rune('0'+user))+"\n" {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
	}
	all.Wait()
	sb := d.open(t, name)
	if err := sb.RefreshProcesses(t.Context()); err != nil || len(sb.Processes()) != hosts*users {
		t.Errorf("%d commands are listed: %v", len(sb.Processes()), err)
	}
	if sockets, err := os.ReadDir(filepath.Join(string(d), name, "sockets-default")); err != nil || len(sockets) != 1+users {
		t.Errorf("sockets: %v, %v", sockets, err)
	}
}

func TestProvider_Open_errors(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	held := start(t, p, fumehood.Spec{Image: busybox}).Info().Name
	for _, name := range []string{"unknown", held, "", ".", "..", "../" + filepath.Base(string(d)) + "/" + held} {
		_, err := p.Open(t.Context(), name)
		conformance.WantError(t, err, fumehood.ErrConfig)
		_, err = p.Renew(t.Context(), name, time.Hour)
		conformance.WantError(t, err, fumehood.ErrConfig)
	}
	if state, _ := stateOf(t, p, held); state != "" {
		t.Errorf("a sandbox that is not kept is listed as %q", state)
	}
	closed := d.another(t)
	name := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := closed.Open(t.Context(), name)
	conformance.WantError(t, err, fumehood.ErrUnavailable)
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
	if state, _ := stateOf(t, p, name); state != "paused" {
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
	if state, _ := stateOf(t, p, name); state != "running" {
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

func TestProvider_Renew(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox, TTL: time.Minute}).Info().Name
	forever := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	var until time.Time
	for _, more := range []time.Duration{time.Hour, 2 * time.Hour, time.Second} { // never earlier than before
		next, err := d.another(t).Renew(t.Context(), name, more)
		if err != nil {
			t.Fatal(err)
		}
		if _, listed := stateOf(t, p, name); next.Before(until) || !next.Equal(listed) || time.Until(next) < more-2*time.Second {
			t.Errorf("renewed for %v: until %v, listed %v, before %v", more, next, listed, until)
		}
		until = next
	}
	if next, err := p.Renew(t.Context(), forever, time.Hour); err != nil || !next.IsZero() {
		t.Errorf("renewed what does not expire: %v, %v", next, err)
	}
}

// An expired sandbox is removed by the next Cleanup, but not by the start of another sandbox.
func TestProvider_Cleanup_expired(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox, TTL: time.Hour}).Info().Name
	expired := start(t, p, fumehood.Spec{Image: busybox, Keep: true, TTL: time.Nanosecond})
	sweeper := d.another(t)
	start(t, sweeper, fumehood.Spec{Image: busybox})
	if err := sweeper.Close(t.Context()); err != nil { // waits for the sweep or stops it
		t.Fatal(err)
	}
	answers(t, expired)
	conformance.Eventually(t, "the expired sandbox is removed", func() bool {
		if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
			t.Fatal(err)
		}
		state, _ := stateOf(t, p, expired.Info().Name)
		return state == ""
	})
	gone(t, expired.Info().Name)
	if state, _ := stateOf(t, p, name); state != "running" {
		t.Errorf("the other sandbox is %q", state)
	}
	_, err := expired.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrUnavailable)
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
