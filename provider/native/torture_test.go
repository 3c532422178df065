//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// bombs use up a limit of their sandbox. check looks at how the command ended.
var bombs = map[string]struct {
	script string
	limits fumehood.Limits
	check  func(t *testing.T, res *fumehood.Result)
}{
	"processes": {
		"import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass",
		fumehood.Limits{PIDs: 150},
		func(t *testing.T, res *fumehood.Result) {
			if res.Outcome != fumehood.TimedOut || res.Usage.PIDsLimits == 0 || res.Leaked {
				t.Errorf("got %s, %+v, leaked %v", res.Outcome, res.Usage, res.Leaked)
			}
		},
	},
	"memory": {
		"a = []\nwhile True: a.append(bytearray(1 << 20))",
		fumehood.Limits{Memory: 128 << 20},
		func(t *testing.T, res *fumehood.Result) {
			if res.Outcome != fumehood.OutOfMemory || res.Usage.OOMKills == 0 {
				t.Errorf("got %s, %+v", res.Outcome, res.Usage)
			}
		},
	},
	"disk": {
		"import errno, sys\nf = open('/big', 'wb')\ntry:\n  while True: f.write(bytes(1 << 20)); f.flush()\nexcept OSError as e: print(errno.errorcode[e.errno])",
		fumehood.Limits{Memory: 256 << 20},
		func(t *testing.T, res *fumehood.Result) {
			if got := res.Stdout.Text(); !res.Success() || got != "ENOSPC\n" {
				t.Errorf("got %s, %q, %s", res.Outcome, got, res.Stderr.Text())
			}
		},
	},
	"shared memory": {
		"import errno\nf = open('/dev/shm/big', 'wb')\ntry:\n  while True: f.write(bytes(1 << 20)); f.flush()\nexcept OSError as e: print(errno.errorcode[e.errno])",
		fumehood.Limits{Memory: 256 << 20},
		func(t *testing.T, res *fumehood.Result) {
			if got := res.Stdout.Text(); !res.Success() || got != "ENOSPC\n" {
				t.Errorf("got %s, %q, %s", res.Outcome, got, res.Stderr.Text())
			}
		},
	},
}

// A program that uses up a limit is ended with the right outcome. Its sandbox and others answer meanwhile and afterwards.
func TestSandbox_bombs(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI) // they take the processors from other tests
	explode(t, native.Options{}, slices.Collect(maps.Keys(bombs))...)
}

// explode runs bombs by their names.
func explode(t *testing.T, opts native.Options, names ...string) {
	p := newProvider(t, opts)
	neighbor := start(t, p, fumehood.Spec{Image: debian})
	for _, name := range names {
		b := bombs[name]
		t.Run(name, func(t *testing.T) {
			sb := start(t, p, fumehood.Spec{Image: debian, Limits: b.limits})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				res, err := sb.Exec(t.Context(), fumehood.Cmd{
					Args: []string{"python3", "-c", b.script}, Timeout: 5 * time.Second, Grace: fumehood.NoGrace,
				})
				if err != nil {
					t.Error(err)
					return
				}
				b.check(t, res)
			}()
			for running := true; running; {
				select {
				case <-ended:
					running = false
				case <-time.After(200 * time.Millisecond):
					answers(t, neighbor)
				}
			}
			answers(t, sb)
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
			gone(t, sb.Info().Name)
		})
	}
}

func TestExec_memoryOfChildren(t *testing.T) {
	t.Parallel()
	conformance.Memory(t, start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 128 << 20}}))
}

func TestExec_memoryOfProgram(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	spec := fumehood.Spec{Compose: composeFile(t, fmt.Sprintf("services: {default: {image: %s, mem_limit: 128m, command: [python3, -c, %q]}}", debian, conformance.ProgramOutOfMemory))}
	conformance.MemoryOfProgram(t, start(t, p, spec))
	conformance.MemoryOfProgram(t, again(t, p, keep(t, p, spec)))
}

func TestExec_besideBusyLoops(t *testing.T) {
	tier.Need(t, tier.All) // they take the processors from other tests
	conformance.Busy(t, start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox}))
}

func TestExec_cpuTime(t *testing.T) {
	tier.Need(t, tier.CI) // it takes the processors from other tests
	t.Parallel()
	conformance.CPUTime(t, start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian}))
}

func TestSpec_tmpfs(t *testing.T) {
	t.Parallel()
	need(t)
	for name, opts := range map[string]native.Options{"root": {}, "user namespace": {UserNamespace: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Tmpfs(t, newProvider(t, opts), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20}}, 1000)
		})
	}
}

// A sandbox whose files in memory leave none for its first process ends by the out-of-memory killer.
func TestSandbox_outOfMemory(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20}})
	const script = "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/dev/shm/$i bs=1M count=10; done; dd if=/dev/zero of=/file bs=1M count=60; tail /dev/zero"
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
	if err != nil || res.Outcome != fumehood.OutOfMemory {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrBroken) {
		t.Errorf("afterwards: %v", err)
	}
}

// answers checks that a sandbox runs a command within 10 s.
func answers(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"echo", "alive"}}); err != nil || res.Stdout.Text() != "alive\n" {
		t.Errorf("no answer: %+v, %v", res, err)
	}
}

// gone checks that nothing with a sandbox's name is left in the control groups, and so no process.
func gone(t *testing.T, name string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/*/fumehood/" + name + "-*", "/sys/fs/cgroup/fumehood/" + name + "-*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// Many sandboxes, one after the other and at once, leave nothing.
func TestProvider_many(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newProvider(t, native.Options{StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache")})
	prefix := "many" + strings.ToLower(filepath.Base(filepath.Dir(dir))[len("TestProvider_many"):])
	one := func(n int, alive *sync.WaitGroup) {
		sb, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Name: fmt.Sprintf("%s-%d", prefix, n)})
		if err != nil {
			t.Error(err)
			alive.Done()
			return
		}
		for _, user := range []string{"0", "7"} {
			if res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo alive"}, Timeout: time.Minute}); err != nil || res.Stdout.Text() != "alive\n" {
				t.Errorf("%+v, %v", res, err)
			}
		}
		if n == 0 && len(leftovers(t, dir, prefix)) < 8 {
			t.Error("a sandbox that runs is not found")
		}
		alive.Done()
		alive.Wait() // all exist at the same time
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	serial := tier.Pick(t, 30, 100, 1000)
	for n := range serial {
		var alive sync.WaitGroup
		alive.Add(1)
		one(n, &alive)
	}
	var alive, all sync.WaitGroup
	atOnce := tier.Pick(t, 8, 20, 200)
	alive.Add(atOnce)
	for n := range atOnce {
		all.Go(func() { one(serial+n, &alive) })
	}
	all.Wait()
	if left := leftovers(t, dir, prefix); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
