package docker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/dockertest"
	"github.com/fumehood/fumehood/provider/docker"
)

// The guest sees /proc and ends what takes too long; the Engine does neither. So it shows who has done what was asked.
func TestADirectServiceHasNoHelpFromTheSandbox(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{})
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: "fumehood-test/busybox"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.ReadFile(t.Context(), "/proc/version", fumehood.ReadOptions{}); err != nil {
		t.Error(err)
	}
	for name, direct := range map[string]fumehood.Service{"the service": sb.ViaEngine(), "as another user": sb.As("nobody").ViaEngine(), "another user of it": sb.ViaEngine().As("nobody")} {
		t.Run(name, func(t *testing.T) {
			if _, err := direct.ReadFile(t.Context(), "/proc/version", fumehood.ReadOptions{}); !errors.Is(err, fumehood.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			if err := direct.WriteFile(t.Context(), "/tmp/direct", []byte("x"), fumehood.WriteOptions{}); err != nil {
				t.Error(err)
			}
			if got, err := sb.ReadFile(t.Context(), "/tmp/direct", fumehood.ReadOptions{}); err != nil || string(got) != "x" {
				t.Errorf("got %q, %v", got, err)
			}
			res, err := direct.Exec(t.Context(), fumehood.Cmd{Args: []string{"sleep", "30"}, Timeout: time.Second})
			if err != nil || res.Outcome != fumehood.TimedOut || !res.Leaked {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// A file that the kernel makes up has no content where it says so, and that is no failure of the sandbox.
func TestAFileThatTheKernelMakesUpCannotAlwaysBeRead(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	for _, file := range []string{"/proc/self/mem", "/proc/self/task/1/mem"} {
		if _, err := sb.ReadFile(t.Context(), file, fumehood.ReadOptions{}); !errors.Is(err, fumehood.ErrNotRegular) {
			t.Errorf("%s: %v, %v", file, err, fumehood.ClassOf(err))
		}
	}
	if b, err := sb.ReadFile(t.Context(), "/proc/self/status", fumehood.ReadOptions{}); err != nil || len(b) == 0 {
		t.Errorf("%q, %v", b, err)
	}
}

// The Engine looks up users in the container's own files when it archives some of it, and would wait at a pipe for ever,
// with the container locked: it could not be removed any more.
func TestADirectServiceDoesNotWaitAtPipesInPlaceOfUsers(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{})
	for name, script := range map[string]string{
		"users":        "mv /etc/passwd /etc/old; mkfifo /etc/passwd",
		"groups":       "mv /etc/group /etc/old; mkfifo /etc/group",
		"by a link":    "mv /etc/passwd /etc/old; mkfifo /pipe; ln -s ../pipe /etc/passwd",
		"by links":     "mv /etc/passwd /etc/old; mkfifo /pipe; ln -s /pipe /link; ln -s ../link /etc/passwd",
		"of a service": "rm -f /etc/nsswitch.conf; mkfifo /etc/nsswitch.conf",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			sb, err := p.Start(ctx, fumehood.Spec{Image: "fumehood-test/busybox"})
			if err != nil {
				t.Fatal(err)
			}
			direct := sb.ViaEngine()
			if err := sb.WriteFile(ctx, "/tmp/file", []byte("x"), fumehood.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got, err := direct.ReadFile(ctx, "/tmp/file", fumehood.ReadOptions{}); err != nil || string(got) != "x" {
				t.Errorf("before: got %q, %v", got, err)
			}
			if res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-ec", script}}); err != nil || res.ExitCode != 0 {
				t.Fatalf("got %+v, %v", res, err)
			}
			_, err = direct.ReadFile(ctx, "/tmp/file", fumehood.ReadOptions{})
			if !errors.Is(err, fumehood.ErrNotRegular) || !strings.Contains(err.Error(), "would wait for ever") {
				t.Errorf("a file: got %v", err)
			}
			if r, err := direct.Download(ctx, "/tmp"); !errors.Is(err, fumehood.ErrNotRegular) {
				t.Errorf("a tree: got %v", err)
				if err == nil {
					_ = r.Close()
				}
			}
			if got, err := sb.ReadFile(ctx, "/tmp/file", fumehood.ReadOptions{}); err != nil || string(got) != "x" {
				t.Errorf("by the guest: got %q, %v", got, err)
			}
			if err := sb.Close(ctx); err != nil {
				t.Errorf("it is not removed: %v", err)
			}
		})
	}
}

// The guest lets the kernel wake its own threads late. A command's sleep as they do without it.
func TestACommandsThreadsAreWokenAsWithoutAGuest(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	slack := func(s fumehood.Service, cmd fumehood.Cmd) string {
		cmd.Args = []string{"cat", "/proc/self/timerslack_ns"}
		res, err := s.Exec(t.Context(), cmd)
		if err != nil || !res.Success() {
			t.Fatal(res, err)
		}
		return strings.TrimSpace(res.Stdout.Text())
	}
	want := slack(sb.ViaEngine(), fumehood.Cmd{})
	for name, cmd := range map[string]fumehood.Cmd{
		"a command": {}, "one with limits": {Rlimits: fumehood.Rlimits{OpenFiles: 100}}, "one at a terminal": {TTY: true},
	} {
		for range 3 { // by a new worker, and by one that is kept
			if got := slack(sb, cmd); got != want {
				t.Errorf("%s: woken within %s ns, without a guest %s", name, got, want)
			}
		}
		if got := slack(sb.As("nobody"), cmd); got != want {
			t.Errorf("%s, by another user's guest: woken within %s ns, without a guest %s", name, got, want)
		}
	}
}

func TestATerminalThatAProgramOpensAgainIsListenedTo(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{
		Args: []string{"sh", "-c", "echo before; exec <&- >&- 2>&-; sleep 0.3; echo after >/dev/tty"}, TTY: true, Timeout: time.Minute,
	})
	if err != nil || !res.Success() || res.Stdout.Text() != "before\r\nafter\r\n" {
		t.Errorf("got %+v, %v", res, err)
	}
}
