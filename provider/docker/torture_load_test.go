package docker_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// footprint is the resource usage of this process.
type footprint struct {
	memory          uint64 // bytes of heap and stacks in use
	goroutines, fds int
}

func footprintOf(t *testing.T) footprint {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return footprint{m.HeapInuse + m.StackInuse, runtime.NumGoroutine(), len(fds)}
}

// aloneVar names the test that a process runs alone.
const aloneVar = "FUMEHOOD_TEST_ALONE"

// alone runs a test that measures its own process in a separate process, in parallel with other tests, and returns
// false. In that process it returns true.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneVar) == t.Name() {
		return true
	}
	t.Parallel()
	tier.NeedDocker(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), aloneVar+"="+t.Name())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(out), "--- SKIP: ") {
		t.Skip("skipped in its own process")
	}
	return false
}

func TestExec_outputFlood(t *testing.T) {
	if !alone(t) {
		return
	}
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	before := footprintOf(t)
	over := make(chan struct{})
	var most atomic.Uint64
	var sampler sync.WaitGroup
	sampler.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), m.HeapInuse+m.StackInuse))
			}
		}
	})
	wall := time.Duration(tier.Pick(t, 3, 3, 30)) * time.Second
	began := time.Now()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"yes"}, StdoutCap: 1 << 20, Timeout: wall, Grace: fumehood.NoGrace})
	took := time.Since(began)
	close(over)
	sampler.Wait()
	if err != nil || res.Outcome != fumehood.TimedOut || len(res.Stdout.Bytes) != 1<<20 || res.Stdout.Total < 10<<20 {
		t.Fatalf("got %+v, %v", res.Outcome, err)
	}
	if took < wall || took > wall+3*time.Second {
		t.Errorf("the limit was %v, the end came after %v", wall, took)
	}
	grown := int64(most.Load()) - int64(before.memory) //nolint:gosec // sizes
	if grown > 16<<20 {
		t.Errorf("%d bytes more in use", grown)
	}
	t.Logf("%d MiB of output in %v, %d KiB more in use", res.Stdout.Total>>20, took, grown>>10)
}

func TestExec_manyCommands(t *testing.T) {
	if !alone(t) {
		return
	}
	p := newProvider(t, docker.Options{})
	many := tier.Pick(t, 1_500, 4_000, 100_000)
	sandboxes := make([]fumehood.Sandbox, tier.Pick(t, 2, 4, 16))
	outsides := make([]outside, len(sandboxes))
	for i := range sandboxes {
		sandboxes[i] = start(t, p, fumehood.Spec{Image: busybox})
		outsides[i] = watch(t, sandboxes[i])
	}
	const inFlight = 32
	// Standard input, output of two streams and an exit code, each identified by the command's number.
	const script = `read -r in; echo "out $1 $in"; echo "err $1" >&2; exit $(($1 % 100))`
	run := func(from, to int) {
		var next atomic.Int64
		next.Store(int64(from))
		var all sync.WaitGroup
		for w := range inFlight {
			sb := sandboxes[w%len(sandboxes)]
			all.Go(func() {
				for i := int(next.Add(1)) - 1; i < to && !t.Failed(); i = int(next.Add(1)) - 1 {
					cmd := fumehood.Cmd{Args: []string{"sh", "-c", script, "sh", fmt.Sprint(i)}, Stdin: strings.NewReader(fmt.Sprintf("in%d\n", i)), Timeout: time.Minute}
					res, err := sb.Exec(t.Context(), cmd)
					if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != i%100 ||
						string(res.Stdout.Bytes) != fmt.Sprintf("out %d in%d\n", i, i) || string(res.Stderr.Bytes) != fmt.Sprintf("err %d\n", i) {
						t.Errorf("command %d: %+v, %v", i, res, err)
					}
				}
			})
		}
		all.Wait()
	}
	began := time.Now()
	warm := max(many/10, 312*len(sandboxes)) // by then every guest has run several garbage collections
	run(0, warm)
	early, guestsEarly := footprintOf(t), guestsOf(t, outsides)
	run(warm, many)
	took := time.Since(began)
	var late, guestsLate footprint
	defer func() {
		t.Logf("%d commands in %v, %.0f a second; after %d %+v, guests %+v; at the end %+v, guests %+v",
			many, took, float64(many)/took.Seconds(), warm, early, guestsEarly, late, guestsLate)
	}()
	conformance.Eventually(t, "memory use is as before", func() bool {
		late, guestsLate = footprintOf(t), guestsOf(t, outsides)
		return late.goroutines <= early.goroutines+5 && late.fds <= early.fds+5 && late.memory <= early.memory+4<<20 &&
			guestsLate.fds <= guestsEarly.fds+len(sandboxes) && guestsLate.memory <= guestsEarly.memory+uint64(len(sandboxes))<<20
	})
	if most := uint64(10 << 20); guestsLate.memory > most*uint64(len(sandboxes)) {
		t.Errorf("the %d guests have %d bytes", len(sandboxes), guestsLate.memory)
	}
}

// guestsOf returns the usage of the sandboxes' main guests, as the host sees it.
func guestsOf(t *testing.T, all []outside) (sum footprint) {
	t.Helper()
	for _, o := range all {
		for p, s := range o.all() {
			if !strings.HasSuffix(strings.TrimSpace(s.cmdline), " serve") {
				continue
			}
			dir := fmt.Sprintf("/proc/%d/", p.pid)
			fds, err := os.ReadDir(dir + "fd")
			if err != nil {
				t.Skipf("the guest cannot be looked at: %v", err)
			}
			sum.fds += len(fds)
			statm, err := os.ReadFile(dir + "statm") // proc(5): the second number is the resident size in pages
			if err != nil {
				t.Fatal(err)
			}
			pages, _ := strconv.Atoi(strings.Fields(string(statm))[1])
			sum.memory += uint64(pages * os.Getpagesize()) //nolint:gosec // a size
		}
	}
	return sum
}

func TestExec_outputBeforeExit(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	// The pipe holds all of it. The program exits while the pipe is full, and a child keeps it open.
	const script = `%s head -c 65536 /dev/zero | tr '\0' x`
	for holder, bound := range map[string]time.Duration{"": time.Second, "sleep 1000 &": 300 * time.Millisecond} {
		var slowest atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 8 {
					began := time.Now()
					res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", fmt.Sprintf(script, holder)}, Timeout: time.Minute})
					took := time.Since(began)
					slowest.Store(max(slowest.Load(), int64(took)))
					if err != nil || !res.Success() || res.Stdout.Total != 65536 || strings.Trim(res.Stdout.Text(), "x") != "" {
						t.Errorf("%q: %+v, %v", holder, res, err)
						return
					}
					if took > 10*bound {
						t.Errorf("%q: after %v", holder, took)
					}
				}
			})
		}
		all.Wait()
		t.Logf("%q: the slowest of 64 took %v", holder, time.Duration(slowest.Load()))
	}
}

// A container ends with the process that has its sandbox, also without a reaper.
func TestExec_hostKilled(t *testing.T) {
	t.Parallel()
	const name = "torture-dead-host"
	p := newProvider(t, docker.Options{})
	kill := conformance.StartOwner(t, "command", t.TempDir(), name, false)
	objects := objectsOf(t, name)
	if len(objects) != 1 || objects[0].State != "running" {
		t.Fatalf("there is %+v", objects)
	}
	o := outside{objects[0].ID}
	visible := len(o.all()) > 0
	began := time.Now()
	kill()
	conformance.Eventually(t, "the container has exited", func() bool {
		state, err := engineOf(t).Inspect(t.Context(), objects[0].ID)
		return err == nil && !state.Running
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it exited after %v", took)
	}
	if left := o.all(); visible && len(left) != 0 {
		t.Errorf("still running: %+v", left)
	}
	p.OnlySandboxes(name)
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := objectsOf(t, name); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// memoryOf returns the resident size of a process, now and at its peak, in KiB. Both are 0 if the process has ended.
func memoryOf(t *testing.T, pid int) (now, peak int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(text, &now) // on an error it is 0, which is rejected below
		}
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(text, &peak) // likewise
		}
	}
	return now, peak
}

func TestGuest_memory(t *testing.T) {
	t.Parallel()
	const most = 10 << 10 // KiB
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	o := watch(t, sb)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for next.Add(1) <= 200 {
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "head -c 1000000 /dev/zero"}, StdoutCap: 1000, Timeout: time.Minute})
				if err != nil || !res.Success() || res.Stdout.Total != 1000000 {
					t.Errorf("%+v, %v", res, err)
				}
			}
		})
	}
	all.Wait()
	main := o.mainOf(t)
	workers, largest := 0, 0
	for p, s := range o.all() {
		if !s.guest() {
			continue
		}
		now, peak := memoryOf(t, p.pid)
		if now == 0 && p.pid != main {
			continue // a spare worker that has exited since
		}
		if now == 0 || peak == 0 {
			t.Fatalf("process %d, %q, has no size", p.pid, s.cmdline)
		}
		if now > most {
			t.Errorf("%q has %d KiB in memory, more than %d", s.cmdline, now, most)
		}
		if p.pid == main {
			t.Logf("the guest has %d KiB in memory, at its peak %d", now, peak)
		} else {
			workers++
			largest = max(largest, peak)
		}
	}
	if workers == 0 {
		t.Error("no workers")
	}
	t.Logf("%d workers, the largest with %d KiB at its peak", workers, largest)
}
