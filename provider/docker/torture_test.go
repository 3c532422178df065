package docker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// hostProc identifies a process as the host sees it, by PID and start time, so that a reused PID is not mistaken for
// it.
type hostProc struct {
	pid   int
	start string // in ticks since boot
}

// seen is what the host's /proc contains about a process in a sandbox.
type seen struct {
	state   string
	cmdline string
}

func (s seen) guest() bool { return strings.HasPrefix(s.cmdline, compose.GuestProgram+" ") }

// outside observes a sandbox's processes from outside.
type outside struct{ id string }

// watch finds the sandbox's container in the host's /proc. It skips the test if the daemon's processes are not visible
// there.
func watch(t *testing.T, sb fumehood.Sandbox) outside {
	t.Helper()
	state, err := engineOf(t).Inspect(t.Context(), sb.ServiceInfo().Container)
	if err != nil {
		t.Fatal(err)
	}
	o := outside{state.ID}
	if len(o.all()) == 0 {
		t.Skip("needs the daemon's processes in /proc to see which survive")
	}
	return o
}

// all returns the processes of the container that have not ended.
func (o outside) all() map[hostProc]seen {
	all := map[hostProc]seen{}
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, path := range groups {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), o.id) {
			continue
		}
		dir := filepath.Dir(path)
		pid, _ := strconv.Atoi(filepath.Base(dir)) // contains digits only
		stat, _ := os.ReadFile(dir + "/stat")
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		// A process whose first thread has ended is also shown as a zombie, but has more threads.
		if len(f) < 20 || (f[0] == "Z" || f[0] == "X") && f[17] == "1" {
			continue
		}
		all[hostProc{pid, f[19]}] = seen{f[0], strings.ReplaceAll(string(cmdline), "\x00", " ")}
	}
	return all
}

// others lists the processes that are neither guests nor in known.
func (o outside) others(known map[hostProc]seen) (others []string) {
	for p, s := range o.all() {
		if _, ok := known[p]; !ok && !s.guest() {
			others = append(others, strconv.Itoa(p.pid)+" "+s.state+" "+s.cmdline)
		}
	}
	return others
}

// intact checks that every process of known that is not a guest is still running.
func (o outside) intact(t *testing.T, known map[hostProc]seen) {
	t.Helper()
	now := o.all()
	for p, s := range known {
		if got := now[p]; !s.guest() && (got.state == "" || got.state == "T") && !strings.HasPrefix(s.cmdline, "sleep 0.") {
			t.Errorf("the neighbor's process %d (%s) is in state %q", p.pid, s.cmdline, got.state)
		}
	}
}

// gone waits until only known processes and guests exist.
func (o outside) gone(t *testing.T, known map[hostProc]seen) {
	t.Helper()
	var left []string
	defer func() {
		if t.Failed() {
			t.Logf("left: %q", left)
		}
	}()
	conformance.Eventually(t, "nothing of the command is left", func() bool {
		left = o.others(known)
		return len(left) == 0
	})
}

// hostile builds a tree of processes that resists being killed, reports that, and waits.
const hostile = `
import ctypes, os, signal, sys, threading, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
def sleep():
    while True: time.sleep(1000)
def daemon(f):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            f()
        os._exit(0)
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
    sleep()
def wiped(): os.execve(sys.executable, ["x", "-c", "import time; time.sleep(1000)"], {})
def hop():
    while True:
        if os.fork(): os._exit(0)
def breed():
    while True:
        if os.fork() == 0:
            os.setsid()
            time.sleep(0.02)
            os._exit(0)
        try: os.waitpid(-1, os.WNOHANG)
        except OSError: pass
        time.sleep(0.001)
def reaper():
    ctypes.CDLL(None).prctl(36, 1)
    daemon(sleep)
    sleep()
def thaw():
    group = os.getpgid(0)
    while True:
        try: os.kill(-group, signal.SIGCONT)
        except OSError: pass
def headless():
    libc = ctypes.CDLL(None)
    threading.Thread(target=sleep).start()
    libc.syscall(93 if os.uname().machine == "aarch64" else 60, 0) # exit, of this thread alone
def tree(n):
    if n and os.fork() == 0: tree(n - 1)
    elif n and os.fork() == 0: tree(n - 1)
    sleep()
for f in [sleep, stopped, wiped, hop, breed, reaper, thaw, headless, lambda: tree(3)]: daemon(f)
if os.fork() == 0: tree(3)
if os.fork() == 0: stopped()
print("ready", flush=True)
sleep()
`

// neighbor starts a command with a daemon, which must survive when other processes are killed.
func neighbor(t *testing.T, sb fumehood.Sandbox) fumehood.Process {
	t.Helper()
	return begun(t, sb, fumehood.Cmd{ // the daemon is starting
		Args: []string{"sh", "-c", "echo kept > /tmp/neighbor; setsid sleep 100000 & echo begun; sleep 100000; echo never"},
	})
}

// settled waits until the sandbox has as many programs as expected, and returns its processes.
func (o outside) settled(t *testing.T, programs int) map[hostProc]seen {
	t.Helper()
	conformance.Eventually(t, "the neighbor has begun", func() bool { return len(o.others(nil)) == programs })
	return o.all()
}

func TestKill_hostileTree(t *testing.T) {
	t.Parallel()
	rounds := tier.Pick(t, 4, 8, 200)
	for _, user := range []string{"", "tester"} {
		t.Run("as "+user, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, docker.Options{})
			sb := start(t, p, fumehood.Spec{Image: debian, User: user, Limits: fumehood.Limits{PIDs: 300}})
			o := watch(t, sb)
			beside := neighbor(t, sb)
			known := o.settled(t, 3) // sh, its daemon and its sleep
			took := make([]time.Duration, 0, rounds)
			for round := range rounds {
				cmd := fumehood.Cmd{Args: []string{"python3", "-c", hostile}, Grace: fumehood.NoGrace}
				if round%4 == 3 {
					cmd.Grace = 20 * time.Millisecond
				}
				proc := begun(t, sb, cmd)
				began := time.Now()
				if err := proc.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(began))
				res, err := proc.Wait(t.Context())
				if err != nil || res.Outcome != fumehood.Signaled || res.Signal != 9 || res.Leaked {
					t.Errorf("round %d: %+v, %v", round, res, err)
				}
				if left := o.others(known); len(left) != 0 {
					t.Fatalf("round %d: %d survivors: %q", round, len(left), left)
				}
				if o.intact(t, known); beside.Info().Ended {
					res, err := beside.Wait(t.Context())
					t.Fatalf("round %d: the neighbor has ended: %+v, %v", round, res, err)
				}
			}
			if got := sh(t, sb, "cat /tmp/neighbor"); got != "kept" {
				t.Errorf("the neighbor's file holds %q", got)
			}
			slices.Sort(took)
			t.Logf("%d rounds, a kill takes %v (median), %v at most", rounds, took[rounds/2], took[rounds-1])
		})
	}
}

func TestKill_forkBomb(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian, Limits: fumehood.Limits{PIDs: 48}})
	o := watch(t, sb)
	for name, bomb := range map[string]string{
		"sessions": "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass",
		"threads":  "import threading,time\nwhile True:\n  try: threading.Thread(target=time.sleep, args=(1000,)).start()\n  except RuntimeError: pass",
	} {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", bomb}, Timeout: 2 * time.Second, Grace: fumehood.NoGrace, StderrCap: 1000})
		if err != nil || res.Outcome != fumehood.TimedOut || res.Leaked || res.Usage.PIDsLimits == 0 {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if left := o.others(nil); len(left) != 0 {
			t.Errorf("%s: %d survivors: %q", name, len(left), left)
		}
		if got := sh(t, sb, "echo alive"); got != "alive" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestExec_manyOrders(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	proc, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if err := proc.Signal(t.Context(), 18); err != nil { // SIGCONT
			t.Fatal(err)
		}
	}
	if err := proc.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, sb, "echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

// fillPool makes the guest keep as many idle workers as it may: four.
func fillPool(t *testing.T, sb fumehood.Sandbox, o outside) {
	t.Helper()
	workers := func() (n int) {
		for _, s := range o.all() {
			if s.guest() && strings.Contains(s.cmdline, " worker ") {
				n++
			}
		}
		return n
	}
	const commands = 8
	var all sync.WaitGroup
	for range commands {
		all.Go(func() {
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done"}})
			if err != nil || !res.Success() {
				t.Error(res, err)
			}
		})
	}
	conformance.Eventually(t, "each command has a worker", func() bool { return workers() >= commands })
	if err := sb.WriteFile(t.Context(), "/tmp/go", nil, fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	conformance.Eventually(t, "four workers are left", func() bool { return workers() == 4 })
}

func TestExec_failedStarts(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	o := watch(t, sb)
	most := func() (n int) {
		for p := range o.all() {
			if fds, err := os.ReadDir("/proc/" + strconv.Itoa(p.pid) + "/fd"); err == nil {
				n = max(n, len(fds))
			}
		}
		return n
	}
	if most() == 0 {
		t.Skip("needs permission to read /proc/PID/fd")
	}
	fillPool(t, sb, o) // the guest has open files for each worker, and starts more when it is slow
	var counts []int
	for range 5 {
		for range 20 {
			if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"/no/such/program"}, Stdin: strings.NewReader("x")}); err == nil {
				t.Fatal("it started")
			}
		}
		counts = append(counts, most())
	}
	if slices.Max(counts) > counts[0]+10 {
		t.Errorf("open files of the guest after each 20 failures: %v", counts)
	}
}
