package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	_ "github.com/fumehood/fumehood/internal/owner/reaper/early"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// sh runs a script in the sandbox. The script must succeed. sh returns its output.
func sh(t *testing.T, sb fumehood.Sandbox, script string) string {
	t.Helper()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Success() {
		t.Fatalf("%q: %s %d %s: %s%s", script, res.Outcome, res.ExitCode, res.Reason, res.Stdout.Text(), res.Stderr.Text())
	}
	return strings.TrimSpace(res.Stdout.Text())
}

// objectsOf lists the objects of a sandbox.
func objectsOf(t *testing.T, sandbox string) []engine.Object {
	t.Helper()
	all, err := engineOf(t).Objects(context.WithoutCancel(t.Context()), owner.LabelSandbox+"="+sandbox)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSandbox_defaults(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	for name, c := range map[string]struct{ script, want string }{
		"only the loopback device":       {"tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo"},
		"no route":                       {"tail -n +2 /proc/net/route | wc -l", "0"},
		"no new privileges":              {"grep NoNewPrivs /proc/self/status | cut -f2", "1"},
		"seccomp filters":                {"grep ^Seccomp: /proc/self/status | cut -f2", "2"},
		"a small capability set":         {"grep CapEff /proc/self/status | cut -f2", "00000000000004fb"},
		"and no more for what it starts": {"grep CapBnd /proc/self/status | cut -f2", "00000000000004fb"},
		"the guest is the main process":  {"tr '\\0' ' ' < /proc/1/cmdline", compose.GuestProgram + " serve"},
		"the guest cannot be written to": {"touch /.fumehood/x 2>/dev/null && echo yes || echo no", "no"},
		"the guest cannot be removed":    {"rm -rf /.fumehood/guest 2>/dev/null; test -e /.fumehood/guest && echo there", "there"},
		"no daemon's socket":             {"ls /var/run/docker.sock /run/docker.sock 2>/dev/null | wc -l", "0"},
		"device nodes cannot be made":    {"mknod /tmp/sda b 8 0 2>/dev/null && echo yes || echo no", "no"},
		"the host's name is not ours":    {"test $(hostname) != " + hostname(t) + " && echo ok", "ok"},
		"raw sockets cannot be opened":   {`python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)' 2>/dev/null && echo yes || echo no`, "no"},
		"kernel settings are read-only":  {"echo 1 > /proc/sys/kernel/panic 2>/dev/null && echo yes || echo no", "no"},
		"mounting is refused":            {"mount -t tmpfs x /mnt 2>/dev/null && echo yes || echo no", "no"},
		"the guest reaps orphans":        {"sh -c 'sleep 0 &'; sleep 0.3; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l", "0"},
	} {
		if got := strings.TrimSpace(sh(t, sb, c.script)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	raw, err := exec.LookPath("docker")
	if err != nil {
		return // the limits below are read with the docker CLI, if available
	}
	format := "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} {{.HostConfig.LogConfig.Config}} {{.Config.StopSignal}} {{.HostConfig.NetworkMode}}"
	out, err := exec.CommandContext(t.Context(), raw, "inspect", "-f", format, sb.ServiceInfo().Container).Output()
	if want := "2147483648 2147483648 1024 map[] SIGKILL none"; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("docker inspect: %q, %v; want %q", out, err, want)
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestGuest_killedInside(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	sh(t, sb, "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; true")
	// This also kills the command's own supervisor, so how the command ended is unknown.
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "kill -9 -1; sleep 1000"}, Timeout: time.Minute})
	if err != nil || res.Outcome != fumehood.Lost || res.ExitCode != -1 || !res.CausedInside {
		t.Errorf("got %+v, %v", res, err)
	}
	if got := sh(t, sb, "echo alive; ps ax | grep -c '[s]leep'; true"); got != "alive\n0" {
		t.Errorf("got %q", got)
	}
}

// The kernel kills even a container's first process by a signal without a handler, if its first thread blocks the
// signal at that moment.
func TestGuest_ignoresSignals(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	const script = "sed -n 's/^SigIgn:[[:space:]]*//p; s/^SigCgt:[[:space:]]*//p' /proc/$0/status"
	masks := func(pid string) (ignored, caught uint64) {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script, pid}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(res.Stdout.Text(), "%x\n%x", &ignored, &caught); err != nil {
			t.Fatalf("%v: %q", err, res.Stdout.Text())
		}
		return ignored, caught
	}
	const unstoppable = 1<<(9-1) | 1<<(19-1) // SIGKILL and SIGSTOP
	if ignored, caught := masks("1"); ignored|caught|unstoppable != math.MaxUint64 {
		t.Errorf("the guest ignores %x and catches %x, but not %x", ignored, caught, ^(ignored | caught | unstoppable))
	}
	const reserved = 1<<(32-1) | 1<<(33-1) | 1<<(34-1)
	if ignored, _ := masks("self"); ignored&reserved != 0 { // others may be inherited from the Engine
		t.Errorf("commands ignore the signals %x", ignored&reserved)
	}
}

func TestExec_memoryOfChildren(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	conformance.Memory(t, start(t, p, fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 128 << 20}}))
}

func TestExec_memoryOfProgram(t *testing.T) {
	t.Parallel()
	yaml := fmt.Sprintf("services: {default: {image: %s, mem_limit: 128m, command: [python3, -c, %q]}}", debian, conformance.ProgramOutOfMemory)
	conformance.MemoryOfProgram(t, start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, yaml)}))
}

func TestExec_besideBusyLoops(t *testing.T) {
	tier.Need(t, tier.All) // they take the processors from other tests
	conformance.Busy(t, start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox}))
}

func TestExec_cpuTime(t *testing.T) {
	tier.Need(t, tier.CI) // it takes the processors from other tests
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	conformance.CPUTime(t, sb)
	conformance.NoCPUTime(t, sb.ViaEngine())
}

func TestSpec_tmpfs(t *testing.T) {
	t.Parallel()
	conformance.Tmpfs(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20}}, 1000)
}

func TestLimits_enforced(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 64 << 20, PIDs: 48, CPUs: 0.5}})
	t.Run("memory", func(t *testing.T) {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "bytearray(256 << 20)"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.OutOfMemory || res.ExitCode != 137 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("exit code 137", func(t *testing.T) {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "exit 137"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 137 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("processes", func(t *testing.T) {
		script := "import os,time\nn=0\ntry:\n  while n<200:\n    if os.fork()==0: time.sleep(2); os._exit(0)\n    n+=1\nexcept OSError: pass\nprint(n)"
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", script}, Timeout: time.Minute})
		if err != nil || !res.Success() || len(strings.TrimSpace(res.Stdout.Text())) > 2 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func TestExec_usage(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	const script = "import time\nx = b'x' * (200 << 20)\nwhile time.process_time() < 0.5: pass"
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", script}, Timeout: time.Minute})
	if err != nil || !res.Success() {
		t.Fatalf("%+v, %v", res, err)
	}
	u := res.Usage
	if u.User+u.System < 500*time.Millisecond || u.MaxRSS < 200<<20 || u.MaxRSS > 300<<20 || u.OOMKills != 0 || u.PIDsLimits != 0 {
		t.Errorf("got %+v", u)
	}
	if u.MemoryPeak < 200<<20 || u.MemoryPeak > fumehood.DefaultMemory {
		t.Errorf("the container had %d bytes at most", u.MemoryPeak)
	}
	// The container's peak covers its whole life; that of a command only the command.
	res, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	if err != nil || res.Usage.MaxRSS > 20<<20 || res.Usage.MemoryPeak < u.MemoryPeak || res.Usage.User+res.Usage.System > 250*time.Millisecond {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestStart_emptyImage(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: static})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"/static"}})
	if err != nil || !res.Success() {
		t.Fatalf("got %+v, %v", res, err)
	}
}

func TestMounts_readOnly(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProvider(t, docker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb := start(t, p, fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{
		{Host: dir, Container: "/ro"}, {Host: dir, Container: "/rw", Writable: true},
	}})
	if got := sh(t, sb, "cat /ro/f; touch /ro/x 2>/dev/null && echo written; touch /rw/y; rm /rw/y"); got != "from the host" {
		t.Errorf("got %q", got)
	}
	if !strings.Contains(log.String(), "can write to the host") || strings.Count(log.String(), dir) != 1 {
		t.Errorf("the log says %q", log.String())
	}
}

func TestProvider_Start(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/var/run/docker.sock", "/etc", "/", "/proc", "/run"} {
		t.Run("mount/"+path, func(t *testing.T) {
			mounts := []fumehood.Mount{{Host: path, Container: "/x"}}
			_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Mounts: mounts})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "this is not safe") {
				t.Errorf("got %v", err)
			}
		})
	}
	var log bytes.Buffer
	mounts := []fumehood.Mount{{Host: link, Container: "/x"}}
	if _, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Mounts: mounts}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a link: %v", err)
	}
	start(t, p, fumehood.Spec{
		Image: busybox, Mounts: mounts, AllowUnsafe: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if !strings.Contains(log.String(), "the isolation is broken") || !strings.Contains(log.String(), link) {
		t.Errorf("the log says %q", log.String())
	}
}

func TestStart_invalidSpec(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	file := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		spec fumehood.Spec
		say  string
	}{
		"a mount of nothing":         {fumehood.Spec{Mounts: []fumehood.Mount{{Host: file, Container: "/x"}}}, file},
		"a mount over the guest":     {fumehood.Spec{Mounts: []fumehood.Mount{{Host: filepath.Dir(file), Container: "/.fumehood/x"}}}, "/.fumehood"},
		"a mount to a relative path": {fumehood.Spec{Mounts: []fumehood.Mount{{Host: "/", Container: "x"}}}, "absolute"},
		"a network that is not":      {fumehood.Spec{Network: fumehood.Network{Mode: "fumehood-no-such-network"}}, "fumehood-no-such-network"},
		"a user that is not":         {fumehood.Spec{User: "nobody-of-that-name"}, "nobody-of-that-name"},
		"too little memory":          {fumehood.Spec{Limits: fumehood.Limits{Memory: 1 << 20}}, "1048576"},
		"an invalid name":            {fumehood.Spec{Name: "No Name"}, "No Name"},
		"a variable with no name":    {fumehood.Spec{Env: map[string]string{"": "x"}}, "no name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Image = busybox
			if c.spec.Name == "" {
				c.spec.Name = "refused-" + strings.ToLower(rand.Text()[:8])
			}
			_, err := p.Start(t.Context(), c.spec)
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v (class %v)", err, fumehood.ClassOf(err))
			}
			if left := objectsOf(t, c.spec.Name); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestStart_disk(t *testing.T) {
	t.Parallel()
	spec := fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Disk: 1 << 30}}
	if _, err := newProvider(t, docker.Options{}).Start(t.Context(), spec); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	sb := start(t, newProvider(t, docker.Options{AllowUnenforcedLimits: true}), spec)
	if got := sb.Info().Unenforced; !slices.Contains(got, "disk") {
		t.Errorf("not enforced: %v", got)
	}
}

// TestMain lets the test program be started again as another owner.
func TestMain(m *testing.M) {
	docker.RunReaper()
	ctx := context.Background()
	if conformance.Owner(ctx, os.Stdout, fumehood.Spec{Image: busybox}, func(dir string, reaper bool) (fumehood.Provider, error) {
		return docker.New(ctx, docker.Options{StateDir: dir, NoReaper: !reaper, NoSweep: true}.Sped(killedSpeed))
	}) {
		os.Exit(1)
	}
	switch os.Getenv("FUMEHOOD_TEST_OWNER") {
	case "":
		os.Exit(m.Run())
	case "killed":
		killedOwner()
		os.Exit(1)
	}
}

func TestStart_labels(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	start(t, p, fumehood.Spec{Image: busybox, Name: "labeled"})
	self, err := owner.Self()
	if err != nil {
		t.Fatal(err)
	}
	objects := objectsOf(t, "labeled")
	if len(objects) != 1 || objects[0].Labels[owner.LabelOwner] != self.String() || objects[0].Labels["com.docker.compose.project"] != "labeled" {
		t.Errorf("there is %+v", objects)
	}
}

func TestStart_guestPruned(t *testing.T) {
	t.Parallel()
	version := guestVersion(t)
	p := newProvider(t, docker.Options{})
	p.OtherGuest(version)
	if err := start(t, p, fumehood.Spec{Image: busybox}).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := engineOf(t)
	caches, err := e.Objects(t.Context(), owner.LabelCache+"=guest")
	if err != nil {
		t.Fatal(err)
	}
	pruned := 0
	for _, o := range caches {
		if o.Kind == engine.Volume && strings.HasPrefix(o.Name, "fumehood-guest-"+version) {
			if err := e.Remove(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			pruned++
		}
	}
	if pruned != 1 {
		t.Errorf("%d volumes were pruned, want 1", pruned)
	}
	if got := sh(t, start(t, p, fumehood.Spec{Image: busybox}), "echo works"); got != "works" {
		t.Errorf("got %q", got)
	}
}

func TestNew_daemonUnreachable(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"unix:///nonexistent/docker.sock", "tcp://127.0.0.1:1"} {
		_, err := docker.New(t.Context(), docker.Options{Host: host})
		var detail *fumehood.Error
		if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), host) || !errors.As(err, &detail) || detail.Hint == "" {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := docker.New(t.Context(), docker.Options{Context: "no-such-context"}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a context that is not there: %v", err)
	}
}
