package docker_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
)

// daemonOnly is part of the log message for guests that cannot use a socket.
const daemonOnly = "through the daemon only"

// debugLog returns a logger and the buffer that it writes to.
func debugLog() (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), &text
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestSockets_stranger(t *testing.T) {
	t.Parallel()
	log, text := debugLog()
	state := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // longer than the address of a socket
	p := newProvider(t, docker.Options{Logger: log, StateDir: state})
	sb := start(t, p, fumehood.Spec{Image: debian})
	if got := sh(t, sb, "ls -A /.fumehood/host | wc -l; touch /.fumehood/host/x 2>/dev/null || echo read-only"); got != "0\nread-only" {
		t.Errorf("the sandbox sees %q", got)
	}
	// Code in the sandbox connects to every socket that appears, and sends nothing or wrong data.
	stranger := `import os, socket, time
kept = []
print("ready", flush=True)
while True:
    for name in os.listdir("/.fumehood/host"):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect("/.fumehood/host/" + name)
            if len(kept) % 2: s.send(b"x" * 32)
            kept.append(s)
        except OSError: pass`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		p, err := sb.Start(ctx, fumehood.Cmd{Args: []string{"python3", "-c", stranger}})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range p.Events() {
			if err != nil {
				t.Fatal(err)
			}
			break // the script is ready
		}
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"id", "-u"}, User: "tester"})
	if err != nil || res.Stdout.Text() != "1000\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if got := names(t, state); len(got) != 1 || got[0] != sb.Info().Name {
		t.Errorf("folders: %q", got)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, state); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	// The script may have kept the second guest from its socket. That guest is then still reached as before.
	if strings.Contains(text.String(), "guests are reached "+daemonOnly) {
		t.Errorf("the log says %s", text)
	}
}

func TestSockets_otherFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	log, text := debugLog()
	p := newProvider(t, docker.Options{Logger: log, StateDir: "/proc/self/cwd/state"}) // a different folder from the daemon's point of view
	for range 2 {
		sb := start(t, p, fumehood.Spec{Image: busybox})
		if got := sh(t, sb, "echo ok"); got != "ok" {
			t.Errorf("got %q", got)
		}
		if err := sb.WriteFile(t.Context(), "/tmp/x", make([]byte, 3<<20), fumehood.WriteOptions{}); err != nil {
			t.Error(err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(text.String(), daemonOnly); n != 1 {
		t.Errorf("logged %d times: %s", n, text)
	}
	if got := names(t, "state"); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func TestCleanup_folders(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p := newProvider(t, docker.Options{StateDir: state})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	dead, err := owner.Self()
	if err != nil {
		t.Fatal(err)
	}
	dead.Start++ // same PID, different process
	if err := os.MkdirAll(filepath.Join(state, "gone", "sockets"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "gone", "owner"), []byte(dead.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.OnlySandboxes(sb.Info().Name, "gone")
	all, err := p.Cleanup(t.Context(), provider.CleanupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if l.Kind == "folder" && l.Removed != (l.Sandbox == "gone") {
			t.Errorf("got %+v", l)
		}
	}
	if got := names(t, state); len(got) != 1 || got[0] != sb.Info().Name {
		t.Errorf("left: %q", got)
	}
}
