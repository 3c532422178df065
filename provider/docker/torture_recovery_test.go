package docker_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// assassin leaves processes of several kinds and reports that. Then it kills, at once, the guest of its user, or the
// guest and its workers.
const assassin = `
import os, signal, sys, time
def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}") as f: return f.read()
    except OSError: return ""
def victims():
    for p in os.listdir("/proc"):
        args, status = read(p, "cmdline").split("\0"), read(p, "status").split("\n")
        if p.isdigit() and p != "1" and args[0].endswith("/guest") and args[1] == "serve" and f"Uid:\t{os.getuid()}\t" in "\n".join(status):
            yield int(p)
            if sys.argv[1] == "all":
                for task in os.listdir(f"/proc/{p}/task"):
                    yield from map(int, read(p, f"task/{task}/children").split())
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(1000)
        os._exit(0)
with open("/tmp/ran", "a") as f: f.write("ran\n")
daemon()
if os.fork() == 0: time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    daemon()
    time.sleep(1000)
print("begun", flush=True)
sys.stdin.readline()
daemon()
all = list(victims())
for s in signal.SIGSTOP, signal.SIGKILL:
    for p in all: os.kill(p, s)
daemon()
time.sleep(1000)
`

func TestGuest_diesLeavesProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		main, user string
		keep       bool
	}{
		{"", "tester", false},
		{"", "0", false},
		{"tester", "root", false},
		{"tester", "1000", false},
		{"1234", "tester", false},
		{"", "tester", true},
	} {
		t.Run(fmt.Sprintf("%s, main %q, kept %v", c.user, c.main, c.keep), func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, docker.Options{})
			begin := start
			if c.keep {
				begin = keep
			}
			sb := begin(t, p, fumehood.Spec{Image: debian, User: c.main})
			o := watch(t, sb)
			neighbor(t, sb)
			// A process of the same user that is not the guest's, because it started before the guest.
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"}, User: c.user, ViaEngine: true})
			if errors.Is(err, fumehood.ErrUnsupported) && c.main != "" && c.user == "root" {
				t.Skip("this machine's daemon does not give root its capabilities: " + err.Error())
			}
			if err != nil || !res.Success() {
				t.Fatalf("%+v, %v", res, err)
			}
			other, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, User: "4321"})
			if err != nil {
				t.Fatal(err)
			}
			known := o.settled(t, 5)
			for i := range tier.Pick(t, 3, 3, 6) {
				victims := []string{"guest", "all"}[i%2] // the guest, or the guest and its workers
				lostOnce(t, sb, c.user, assassin, victims)
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"cat", "/tmp/ran"}, User: c.user, Timeout: time.Minute})
				if left := o.others(known); len(left) != 0 { // immediately: the promise is before the next command
					t.Errorf("%s: left: %q", victims, left)
				}
				if err != nil || res.Stdout.Text() != "ran\n" {
					t.Fatalf("%s: the next command: %+v, %v", victims, res, err)
				}
				o.intact(t, known)
				if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"rm", "/tmp/ran"}, User: c.user}); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// lostOnce runs an assassin's script, whose outcome must be Lost.
func lostOnce(t *testing.T, sb fumehood.Sandbox, user, script, victims string) {
	t.Helper()
	proc, err := sb.Start(t.Context(), fumehood.Cmd{
		Args: []string{"python3", "-c", script, victims}, User: user, StdinPipe: true, Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for ev, err := range proc.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Result == nil {
			if _, err := proc.Write([]byte("now\n")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		ends++
		if ev.Result.Outcome != fumehood.Lost || ev.Result.Reason == "" || ev.Result.Stdout.Text() != "begun\n" {
			t.Errorf("got %+v", ev.Result)
		}
	}
	if ends != 1 {
		t.Errorf("%d results were returned", ends)
	}
}

func TestGuest_diesAtPIDLimit(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian, Limits: fumehood.Limits{PIDs: 64}})
	o := watch(t, sb)
	bomb := strings.Replace(assassin, "\ntime.sleep(1000)\n", `
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
`, 1)
	for range 3 {
		lostOnce(t, sb, "tester", bomb, "all")
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"echo", "alive"}, User: "tester", Timeout: time.Minute})
		if left := o.others(nil); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
		if err != nil || res.Stdout.Text() != "alive\n" {
			t.Fatalf("the next command: %+v, %v", res, err)
		}
	}
}

// mainOf returns the container's first process as the host sees it.
func (o outside) mainOf(t *testing.T) int {
	t.Helper()
	for p := range o.all() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); strings.HasPrefix(line, "NSpid:") && f[len(f)-1] == "1" {
				return p.pid
			}
		}
	}
	t.Fatal("the container has no first process")
	return 0
}

// writeProc writes to a file in /proc of a process, as the host's root.
func writeProc(t *testing.T, pid int, file, text string) {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, file), os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("the host's root could: %v", err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestSandbox_mainDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		die     func(t *testing.T, main int)
		want    []string
		outcome fumehood.Outcome
		inside  bool
	}{
		"killed": {
			func(t *testing.T, main int) {
				writeProc(t, main, "fd/2", "my last words\n")
				if p, err := os.FindProcess(main); err != nil || p.Kill() != nil {
					t.Fatal("the main process could not be killed")
				}
			},
			[]string{"exited with code 137", "my last words"},
			fumehood.Lost, false,
		},
		"out of memory": {
			// By default the kernel would kill the command. This makes it kill the main process.
			func(t *testing.T, main int) { writeProc(t, main, "oom_score_adj", "1000") },
			[]string{"exited with code 137", "out-of-memory"},
			fumehood.OutOfMemory, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, docker.Options{})
			sb := start(t, p, fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 64 << 20}})
			main := watch(t, sb).mainOf(t)
			procs := make([]fumehood.Process, 2)
			for i, user := range []string{"", "tester"} {
				procs[i] = begun(t, sb, fumehood.Cmd{
					Args: []string{"python3", "-c", "print('begun', flush=True); input(); x = [b'x' * (1 << 20) for _ in range(1000)]"}, User: user, StdinPipe: true,
				})
			}
			c.die(t, main)
			_, _ = procs[0].Write([]byte("\n")) // may be dead already
			for _, p := range procs {
				if res, err := p.Wait(t.Context()); err != nil || res.Outcome != c.outcome || res.CausedInside || (res.Reason == "") == (c.outcome == fumehood.Lost) {
					t.Errorf("the command in flight: %+v, %v", res, err)
				}
			}
			for _, user := range []string{"", "tester", "4321"} {
				_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, User: user})
				if !errors.Is(err, fumehood.ErrUnavailable) || errors.Is(err, fumehood.ErrBroken) != c.inside {
					t.Errorf("the next command, as %q: %v", user, err)
				}
				t.Log(err)
				for _, want := range c.want {
					if err != nil && !strings.Contains(err.Error(), want) && (user == "" || want != "my last words") {
						t.Errorf("as %q: %v: does not contain %q", user, err, want)
					}
				}
			}
			_, err := sb.ReadFile(t.Context(), "/etc/passwd", fumehood.ReadOptions{})
			for _, want := range c.want {
				if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), want) {
					t.Errorf("a file: %v: does not contain %q", err, want)
				}
			}
		})
	}
}

// breeder is a service's own program. It has a child once it was told to start it.
const breeder = `
import os, time
while not os.path.exists("/tmp/go"): time.sleep(0.02)
if os.fork() == 0: time.sleep(1000)
open("/tmp/gone", "w").close()
time.sleep(1000)
`

func TestGuest_diesProgramSurvives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args string
		keep bool
	}{
		"":                            {},
		"with the name of our own":    {args: " serve x"},
		"in a kept sandbox":           {keep: true},
		"in a kept sandbox, so named": {args: " serve x", keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSweepBesideAProgram(t, c.args, c.keep)
		})
	}
}

func testSweepBesideAProgram(t *testing.T, args string, kept bool) {
	begin := start
	if kept {
		begin = keep
	}
	sb := begin(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, fmt.Sprintf(`
services:
  default:
    image: %s
    init: false
    environment: {PROGRAM: %q}
    command: [sh, -c, 'exec python3 -c "$$PROGRAM"%s']
`, debian, breeder, args))})
	sh := func(script string) string {
		t.Helper()
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Timeout: time.Minute})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%s: %+v, %v", script, res, err)
		}
		return string(res.Stdout.Bytes)
	}
	bred := sh("touch /tmp/go; while ! test -e /tmp/gone; do sleep 0.02; done; cat /proc/1/task/1/children")
	child := strings.Fields(bred)[0]
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", assassin, "all"}, Stdin: strings.NewReader("\n"), Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if got := sh("cat /proc/" + child + "/stat"); !strings.Contains(got, ") S ") && !strings.Contains(got, ") R ") {
		t.Errorf("the program's child does not live any more: %s", got)
	}
	if got := sh("ps -eo args"); strings.Contains(got, "sys.argv") {
		t.Errorf("processes of the dead guest's command are still running:\n%s", got)
	}
}
