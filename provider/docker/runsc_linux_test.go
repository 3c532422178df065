package docker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// runscProvider connects to a daemon of the test's own that has runsc.
func runscProvider(t *testing.T, d *dockertest.Daemon, runtime string) *docker.Provider {
	t.Helper()
	return newProvider(t, docker.Options{Host: d.Host, StateDir: t.TempDir(), Runtime: runtime, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// wantCommands runs commands in every way, as the service's user and as another user.
func wantCommands(t *testing.T, sb fumehood.Sandbox, other string) {
	t.Helper()
	const within = 20 * time.Second
	want := func(name string, res *fumehood.Result, err error) {
		t.Helper()
		if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 3 || res.Stdout.Text() != "in\n" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	for _, user := range []string{"", other} {
		for range 3 {
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"busybox", "sh", "-c", "echo in; exit 3"}, User: user, Timeout: within})
			want("a command of user "+user, res, err)
		}
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"busybox", "sh", "-c", "busybox cat; exit 3"}, User: user, Timeout: within, Stdin: strings.NewReader("in\n")})
		want("a command with an input of user "+user, res, err)
		p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"busybox", "sh", "-c", "echo in; exit 3"}, User: user, Timeout: within})
		if err != nil {
			t.Error(err)
			continue
		}
		res, err = p.Wait(t.Context())
		want("a command that is followed of user "+user, res, err)
	}
	data := strings.Repeat("0123456789abcdef", 4<<16) // more than the sockets' buffers hold
	if err := sb.WriteFile(t.Context(), "/tmp/data", []byte(data), fumehood.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if got, err := sb.ReadFile(t.Context(), "/tmp/data", fumehood.ReadOptions{}); err != nil || string(got) != data {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

func TestRunsc(t *testing.T) {
	t.Parallel()
	d := dockertest.StartRunscDaemon(t, nil, busybox, debian)
	t.Run("root", func(t *testing.T) {
		sb := start(t, runscProvider(t, d, "runsc"), fumehood.Spec{Image: busybox})
		wantCommands(t, sb, "1000")
		if got := sb.ServiceInfo().Runtime; got != "runsc" {
			t.Errorf("its runtime is %q", got)
		}
	})
	t.Run("user", func(t *testing.T) {
		wantCommands(t, start(t, runscProvider(t, d, ""), fumehood.Spec{Image: busybox, User: "1000", Runtime: "runsc"}), "2000")
	})
	t.Run("kept", func(t *testing.T) {
		p := runscProvider(t, d, "runsc")
		sb := start(t, p, fumehood.Spec{Image: busybox, User: "1000", Keep: true})
		removedAfter(t, p, sb.Info().Name)
		wantCommands(t, again(t, p, sb), "2000")
	})
	t.Run("compose", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "compose.yaml")
		text := `
services:
  default: {image: fumehood-test/busybox, command: [busybox, httpd, -f, -p, "8080"], user: "1000", network_mode: none, runtime: runc}
  idle: {image: fumehood-test/busybox, command: [sleep, infinity], network_mode: none}
`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sb := start(t, runscProvider(t, d, "runsc"), fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}}})
		wantCommands(t, sb, "2000")
		for _, s := range sb.Info().Services {
			if s.Runtime != "runsc" {
				t.Errorf("the file's weaker runtime counts: %+v", s)
			}
		}
	})
	t.Run("no such runtime", func(t *testing.T) {
		_, err := runscProvider(t, d, "").Start(t.Context(), fumehood.Spec{Image: busybox, Runtime: "kata"})
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "runc, runsc") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("out of memory", func(t *testing.T) {
		sb := start(t, runscProvider(t, d, "runsc"), fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 192 << 20}})
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "b = bytearray(b'x') * (1 << 30)"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.OutOfMemory {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("ended inside", func(t *testing.T) {
		sb := start(t, runscProvider(t, d, "runsc"), fumehood.Spec{Image: busybox, User: "0"})
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "kill -9 1; sleep 100"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.Lost || !res.CausedInside {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("doctor", func(t *testing.T) {
		checks := map[string]docker.Check{}
		docker.Diagnose(t.Context(), docker.Options{Host: d.Host, StateDir: t.TempDir(), Runtime: "runsc"}, func(c docker.Check) { checks[c.Name] = c })
		if c := checks["commands"]; c.Status != docker.OK || !strings.Contains(c.Detail, "runsc") {
			t.Errorf("got %+v of %+v", c, checks)
		}
	})
}

func TestRunscDefault(t *testing.T) {
	t.Parallel()
	d := dockertest.StartRunscDaemon(t, []string{"--default-runtime", "runsc"}, busybox)
	p := runscProvider(t, d, "")
	sb := start(t, p, fumehood.Spec{Image: busybox, User: "1000"})
	wantCommands(t, sb, "2000")
	if got := sb.ServiceInfo().Runtime; got != "runsc" {
		t.Errorf("its runtime is %q", got)
	}
	t.Run("compose", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "compose.yaml")
		text := "services:\n  default: {image: fumehood-test/busybox, command: [sleep, infinity], user: \"1000\", network_mode: none, runtime: runc}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sb := start(t, runscProvider(t, d, ""), fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}}})
		if got := sb.ServiceInfo().Runtime; got != "runsc" {
			t.Errorf("the file's weaker runtime counts: %q", got)
		}
		wantCommands(t, sb, "2000")
	})
}

// BenchmarkRunsc_Exec measures an empty command under gVisor.
func BenchmarkRunsc_Exec(b *testing.B) {
	d := dockertest.StartRunscDaemon(b, nil, busybox)
	p, err := docker.New(b.Context(), docker.Options{Host: d.Host, StateDir: b.TempDir(), Runtime: "runsc", NoSweep: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close(context.WithoutCancel(b.Context())) }() // an error does not matter: the daemon is removed too
	sb, err := p.Start(b.Context(), fumehood.Spec{Image: busybox})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if res, err := sb.Exec(b.Context(), fumehood.Cmd{Args: []string{"busybox", "true"}, Timeout: time.Minute}); err != nil || !res.Success() {
			b.Fatal(res, err)
		}
	}
}

// TestRunsc_Promises is the column of gVisor in docs/promises.json. gVisor keeps all of them.
func TestRunsc_Promises(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	d := dockertest.StartRunscDaemon(t, nil, debian)
	column{
		name: "docker guest runsc debian user", spec: fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"},
		users: conformance.Users{Name: "daemon", UID: 1, GID: 1},
		opts:  docker.Options{Host: d.Host, StateDir: t.TempDir(), Runtime: "runsc"},
	}.run(t, program)
}
