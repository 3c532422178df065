//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// runtimes are the OCI runtimes of the tests, each with the smallest tier in which it must be installed.
var runtimes = map[string]tier.Tier{"runc": tier.CI, "crun": tier.All, "runsc": tier.All}

// withRuntime returns options for a runtime. It skips t in smaller tiers than the runtime's.
func withRuntime(t *testing.T, name string) native.Options {
	t.Helper()
	tier.Need(t, runtimes[name])
	if name == "runsc" { // scripts/ensure-runsc builds it
		if built, err := filepath.Abs("../../bin/runsc"); err == nil {
			if _, err := os.Stat(built); err == nil {
				return native.Options{Runtime: built}
			}
		}
	}
	tier.Program(t, runtimes[name], name)
	return native.Options{Runtime: name}
}

// TestRuntime_Promises are the columns of the runtimes in docs/promises.json.
func TestRuntime_Promises(t *testing.T) {
	t.Parallel()
	need(t)
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	for name := range runtimes {
		column := "native " + name + " debian user"
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, withRuntime(t, name))
			const home = "/home/tester"
			conformance.Run(t, conformance.Harness{
				Column: column, Probe: home + "/probe", Users: conformance.Users{Name: "daemon", UID: 1, GID: 1},
				Exceptions: map[string]conformance.Exception{stopKept: notKept(p, "sandboxes of a runtime cannot be kept")},
				StartKept:  func(t *testing.T) fumehood.Sandbox { return start(t, p, fumehood.Spec{Image: debian, Keep: true}) },
				Start: func(t *testing.T) fumehood.Sandbox {
					sb := start(t, p, fumehood.Spec{Image: debian, User: "tester", Dir: home})
					if err := sb.WriteFile(t.Context(), home+"/probe", program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
						t.Fatal(err)
					}
					return sb
				},
			})
		})
	}
}

// gVisor needs no root.
func TestRuntime_Promises_rootless(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	asUserWith(t, rights{runsc: true}, func(t *testing.T) {
		opts := withRuntime(t, "runsc")
		opts.CacheDir = filepath.Join(t.TempDir(), "cache")
		exceptions := map[string]conformance.Exception{
			"errors/forbidden file is ErrPermission": conformance.RootMayAll,
			stopKept:                                 notKept(newProvider(t, opts), "sandboxes of a runtime cannot be kept"),
		}
		promisesWith(t, opts, conformance.Harness{
			Column: "native runsc busybox rootless", Users: conformance.Users{Name: "tester", UID: 1000, GID: 1000}, Exceptions: exceptions,
		}, busybox, false)
	})
}

// Without control groups the memory of gVisor is measured, and nothing ends its processes but this process.
func TestRuntime_rootless_ends(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	asUserWith(t, rights{runsc: true}, func(t *testing.T) {
		opts := withRuntime(t, "runsc")
		opts.CacheDir, opts.AllowUnenforcedLimits = filepath.Join(t.TempDir(), "cache"), true
		opts.StateDir = filepath.Join(t.TempDir(), "state")
		p := newProvider(t, opts)
		ofSandboxes := func() (n int) {
			files, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), opts.StateDir) {
					n++
				}
			}
			return n
		}
		sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 192 << 20}})
		if n := ofSandboxes(); n == 0 {
			t.Error("no process of gVisor")
		}
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"tail", "-c", "1000000000", "/dev/zero"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.OutOfMemory {
			t.Errorf("got %+v, %v", res, err)
		}
		_, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		conformance.WantError(t, err, fumehood.ErrBroken)
		other := start(t, p, fumehood.Spec{Image: busybox})
		run(t, other, "(setsid sh -c 'while :; do :; done' &) > /dev/null 2>&1")
		for _, sb := range []fumehood.Sandbox{sb, other} {
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n := ofSandboxes(); n != 0 {
			t.Errorf("%d processes of gVisor are left", n)
		}
		_, err = p.Start(t.Context(), fumehood.Spec{Image: busybox, Keep: true})
		conformance.WantError(t, err, fumehood.ErrUnsupported)
	})
}

func TestRuntime_attacks(t *testing.T) {
	// In these file systems there is no such file. crun does not keep the attributes of the root file system.
	for name, suid := range map[string][]string{
		"runc": {"/proc/acpi", "/sys/firmware"},
		"crun": {"/", "/proc/acpi", "/sys/firmware", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"},
	} {
		t.Run(name, func(t *testing.T) {
			tier.Need(t, tier.All)
			attackAll(t, withRuntime(t, name), suid...)
		})
	}
}

// The kernel in a sandbox of gVisor is gVisor's own, which may be attacked. What is outside may not.
func TestRuntime_attacks_runsc(t *testing.T) {
	tier.Need(t, tier.All)
	opts := withRuntime(t, "runsc")
	h := newHost(t)
	sb := start(t, newProvider(t, opts), fumehood.Spec{Image: debian, Mounts: h.mounts})
	h.afterwards(t)
	outside := map[string]attack{}
	for _, name := range []string{
		"mount", "unmount", "another root", "the host's files", "device nodes", "trace the guest", "the host's processes", "capabilities",
		"network", "queues and shared memory", "terminal", "read-only mount", "descriptors",
	} {
		outside[name] = attacks[name]
	}
	h.attack(t, sb, "root", outside)
	h.attack(t, sb, "tester", outside)
}

func TestRuntime_images(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	for name := range runtimes {
		t.Run(name+" mounts", func(t *testing.T) { misleadMounts(t, withRuntime(t, name)) })
		// A runtime reads the image's users itself: it fails, or hangs until the limit. Folders in /proc are made before
		// it is mounted, and hidden then.
		t.Run(name, func(t *testing.T) {
			startHostile(t, withRuntime(t, name), "passwd is one line", "passwd is endless", "passwd is the log", "hosts is a FIFO",
				"volume in proc", "volumes", "working directory in proc")
		})
	}
}

func TestRuntime_bombs(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	for name := range runtimes {
		t.Run(name, func(t *testing.T) {
			all := []string{"disk", "shared memory"}
			if name != "runsc" { // there the processes of a sandbox are threads of one process
				all = append(all, "processes", "memory")
			}
			explode(t, withRuntime(t, name), all...)
		})
	}
}

// Under gVisor the out-of-memory killer ends the sandbox.
func TestRuntime_outOfMemory(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, withRuntime(t, "runsc")), fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 192 << 20}})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "b = bytearray(b'x') * (1 << 30)"}, Timeout: time.Minute})
	if err != nil || res.Outcome != fumehood.OutOfMemory {
		t.Errorf("got %+v, %v", res, err)
	}
	_, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrBroken)
}

// Under gVisor, code in a sandbox can end it. That is the code's outcome, not a failure of the machine.
func TestRuntime_endedInside(t *testing.T) {
	t.Parallel()
	opts := withRuntime(t, "runsc")
	for name, script := range map[string]string{
		"process 1": "import os; os.kill(1, 9)",
		"processes": "import os, time\nwhile True:\n  if os.fork() == 0: time.sleep(100)",
	} {
		t.Run(name, func(t *testing.T) {
			sb := start(t, newProvider(t, opts), fumehood.Spec{Image: debian, User: "root", Limits: fumehood.Limits{PIDs: 64}})
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", script}, Timeout: time.Minute})
			if err != nil || res.Success() || res.Outcome == fumehood.Lost && !res.CausedInside {
				t.Errorf("%+v, %v", res, err)
			}
			conformance.WantError(t, sb.Check(t.Context()), fumehood.ErrBroken)
		})
	}
}

// TestRuntime_killed kills owners of sandboxes in each phase.
func TestRuntime_killed(t *testing.T) {
	t.Parallel()
	for name := range runtimes {
		t.Run(name, func(t *testing.T) { killOwners(t, withRuntime(t, name), tier.Pick(t, 0, 6, 90), withoutRuntime) })
	}
}

// TestRuntime_killedRuntime kills a runtime while it starts sandboxes, and processes of it.
func TestRuntime_killedRuntime(t *testing.T) {
	t.Parallel()
	for name := range runtimes {
		t.Run(name, func(t *testing.T) {
			opts := withRuntime(t, name)
			dir := t.TempDir()
			opts.StateDir, opts.CacheDir = filepath.Join(dir, "state"), filepath.Join(dir, "cache")
			p := newProvider(t, opts)
			if err := start(t, p, fumehood.Spec{Image: busybox}).Close(t.Context()); err != nil { // fetches the image
				t.Fatal(err)
			}
			prefix := "r" + strings.ToLower(rand.Text()[:10])
			for n := range tier.Pick(t, 0, 5, 100) {
				killing := make(chan struct{})
				go func() {
					defer close(killing)
					<-time.After(time.Duration(mathrand.IntN(80_000)) * time.Microsecond) //nolint:gosec // not a secret
					killGroup(fmt.Sprintf("/sys/fs/cgroup/pids/fumehood/%s-%d-*-runtime/cgroup.procs", prefix, n))
				}()
				sb, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Name: fmt.Sprintf("%s-%d", prefix, n)})
				if err == nil {
					_, _ = sb.As("7").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}) // its guest is started by the runtime too
				}
				<-killing
				if err == nil {
					err = sb.Close(t.Context())
				} else if !errors.Is(err, fumehood.ErrInfrastructure) && !errors.Is(err, fumehood.ErrUnavailable) {
					t.Errorf("round %d: got %v", n, err)
				}
				if left := leftovers(t, dir, prefix); len(left) > 0 {
					t.Fatalf("round %d: left %q, %v", n, left, err)
				}
			}
		})
	}
}

// killGroup kills the processes in the control groups whose files match a pattern.
func killGroup(pattern string) {
	files, _ := filepath.Glob(pattern)
	for _, f := range files {
		pids, _ := os.ReadFile(f) // empty if it is gone
		for pid := range strings.FieldsSeq(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() { // a thread is there while it starts something
				_ = unix.Kill(n, unix.SIGKILL) // may have ended
			}
		}
	}
}

// A runtime that does not start a sandbox is reported with what it says, and nothing is left.
func TestRuntime_failing(t *testing.T) {
	t.Parallel()
	need(t)
	for name, c := range map[string]struct {
		runtime, script string
		want            error
		says            string
	}{
		"missing":        {runtime: "no-such-runtime", want: fumehood.ErrConfig, says: "no-such-runtime"},
		"not executable": {runtime: "/etc/passwd", want: fumehood.ErrConfig, says: "/etc/passwd"},
		"relative":       {runtime: "bin/runc", want: fumehood.ErrConfig, says: "relative"},
		"fails":          {script: "echo broken >&2; exit 3", want: fumehood.ErrInfrastructure, says: "exit status 3; its standard error: broken"},
		"says much":      {script: "seq 1000000 >&2; exit 1", want: fumehood.ErrInfrastructure, says: "1000000"},
		"starts nothing": {script: "exit 0", want: fumehood.ErrInfrastructure, says: "pid"},
		"other process":  {script: "while [ $# -gt 0 ]; do [ $1 = --pid-file ] && echo 1 > $2; shift; done", want: fumehood.ErrInfrastructure, says: "no child"},
		"talks":          {script: "echo hello; exec sleep 1000", want: fumehood.ErrInfrastructure, says: "message of"},
		"hangs":          {script: "sleep 1000 & sleep 1000", want: fumehood.ErrCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.script != "" {
				c.runtime = filepath.Join(t.TempDir(), "runtime")
				if err := files.WriteProgram(c.runtime, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil { //nolint:gosec // it is executed
					t.Fatal(err)
				}
			}
			p := newProvider(t, native.Options{Runtime: c.runtime})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if errors.Is(c.want, fumehood.ErrCanceled) {
				time.AfterFunc(300*time.Millisecond, cancel)
			}
			prefix := "f" + strings.ToLower(rand.Text()[:10])
			_, err := p.Start(ctx, fumehood.Spec{Image: busybox, Name: prefix})
			conformance.WantError(t, err, c.want)
			if err != nil && (!strings.Contains(err.Error(), c.says) || len(err.Error()) > 10_000) {
				t.Errorf("got %v", err)
			}
			gone(t, prefix)
		})
	}
}

func TestRuntime_choice(t *testing.T) {
	t.Parallel()
	p := newProvider(t, withRuntime(t, "runc"))
	sb := start(t, p, fumehood.Spec{Image: busybox, Runtime: "crun"}) // isolates no more
	if got := sb.ServiceInfo().Runtime; got != "runc" {
		t.Errorf("its runtime is %q", got)
	}
	sb = start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Runtime: "runc"})
	if got := sb.ServiceInfo().Runtime; got != "runc" {
		t.Errorf("its runtime is %q", got)
	}
	_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, User: "nobody-of-that-name"})
	conformance.WantError(t, err, fumehood.ErrConfig)
	_, err = p.Start(t.Context(), fumehood.Spec{Image: busybox, Dir: "/etc/passwd/x"})
	conformance.WantError(t, err, fumehood.ErrConfig)
}

// Options of gVisor are separated by commas, so its layer on the disk may have none in its path.
func TestRuntime_comma(t *testing.T) {
	t.Parallel()
	need(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "runsc")
	if err := files.WriteProgram(program, []byte("#!/bin/sh\necho it runs >&2; exit 3\n"), 0o755); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	p := newProvider(t, native.Options{Runtime: program, StateDir: filepath.Join(dir, "a,b")})
	for disk, want := range map[int64]string{32 << 20: "it runs", 40 << 20: "comma"} { // in memory, on the disk
		_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, Disk: disk}})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, fumehood.ErrConfig) != (want == "comma") {
			t.Errorf("%d bytes: got %v", disk, err)
		}
	}
}

func TestRuntime_tmpfs(t *testing.T) {
	t.Parallel()
	need(t)
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Tmpfs(t, newProvider(t, withRuntime(t, name)), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20}}, 1000)
		})
	}
}
