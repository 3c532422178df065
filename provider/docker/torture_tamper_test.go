package docker_test

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// unfiltered allows setting the limits of other processes, as with CAP_SYS_RESOURCE. Fumehood's profile denies it.
var unfiltered = docker.Options{Seccomp: "unconfined"}

// tampering are commands that tamper with the processes that run them. Each leaves a daemon.
var tampering = map[string]string{
	"kills its worker":               `setsid sleep 1000 & kill -9 $PPID; sleep 1000`,
	"kills all that it may":          `setsid sleep 1000 & setsid sh -c 'sleep 1000 & wait' & kill -9 -1; sleep 1000`,
	"stops its worker":               `setsid sleep 1000 & kill -STOP $PPID; sleep 1000`,
	"stops all that it may":          `setsid sleep 1000 & kill -STOP -1; sleep 1000`,
	"stops its worker over and over": `setsid sh -c "while :; do kill -STOP $PPID; done" & sleep 1000`,
	"takes its worker's descriptors": `setsid sleep 1000 & prlimit --pid $PPID --nofile=0:0; sleep 1000`,
	"leaves its worker too few":      `setsid sleep 1000 & prlimit --pid $PPID --nofile=8:8; sleep 1000`,
	"terminates all that it may":     `trap '' TERM; setsid sleep 1000 & for s in 1 2 3 6 11 13 14 15 21 22 24 31; do kill -$s -1; done; sleep 1000`,
}

func TestTamper_worker(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "tester"} {
		t.Run("as "+user, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, unfiltered), fumehood.Spec{Image: debian, User: user})
			o := watch(t, sb)
			for name, script := range tampering {
				for range tier.Pick(t, 1, 1, 3) {
					sh(t, sb, "sleep 0 & sleep 0 & wait") // so that there are idle workers too
					began := time.Now()
					res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Timeout: time.Second, Grace: fumehood.NoGrace})
					if err != nil || res.Leaked || res.Outcome != fumehood.Lost && res.Outcome != fumehood.TimedOut {
						t.Errorf("%s: got %+v, %v", name, res, err)
					}
					if took := time.Since(began); took > 11*time.Second {
						t.Errorf("%s: it took %v", name, took)
					}
					res, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"echo", "alive"}, Timeout: time.Minute})
					if err != nil || !res.Success() || res.Stdout.Text() != "alive\n" {
						t.Errorf("%s: the next command: %+v, %v", name, res, err)
					}
					o.gone(t, nil)
				}
			}
		})
	}
}

// stopsOften is a script that stops the worker of the neighbor now and then, as kills of other commands do when they
// stop all processes of the sandbox. It prints how often the worker did not go on.
const stopsOften = `
import glob, os, signal, sys, time
def stat(pid): return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
neighbor = next(p.split("/")[2] for p in glob.glob("/proc/[0-9]*/cmdline") if b"/tmp/neighbor" in open(p, "rb").read().split(b"\0sleep")[0] and p.split("/")[2] != str(os.getpid()))
worker = int(stat(neighbor)[1])
for _ in range(12):
    os.kill(worker, signal.SIGSTOP)
    for _ in range(600):
        time.sleep(0.1)
        if stat(worker)[0] not in "Tt": break
    else: print("still stopped")
    time.sleep(0.5)
print("done")
`

func TestTamper_workerStoppedOften(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	beside := neighbor(t, sb)
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", stopsOften}})
	if err != nil || res.Stdout.Text() != "done\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if err := beside.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if res, err := beside.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled {
		t.Errorf("the neighbor: %+v, %v", res, err)
	}
}

// otherGuests is a script, run by root, that kills the guests of other users.
const otherGuests = `for p in /proc/[0-9]*; do
	case "$(tr '\0' ' ' < $p/cmdline 2>/dev/null)" in *guest\ serve*) test $p = /proc/1 || kill -9 ${p#/proc/};; esac
done`

func TestTamper_userGuest(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"the guest":  otherGuests,
		"everything": "kill -9 -1",
		// Its workers cannot kill the processes that they started.
		"by its own user": `kill -9 $(grep -lx guest /proc/[0-9]*/comm 2>/dev/null | tr -dc '0-9\n')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, docker.Options{})
			sb := start(t, p, fumehood.Spec{Image: debian})
			o := watch(t, sb)
			user := ""
			if name == "by its own user" {
				user = "tester"
			}
			for range tier.Pick(t, 2, 2, 3) {
				proc, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "setsid sleep 1000 & echo begun; sleep 1000"}, User: "tester"})
				if err != nil {
					t.Fatal(err)
				}
				for ev, err := range proc.Events() {
					if err != nil {
						t.Fatal(err)
					}
					if ev.Result == nil {
						if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, User: user, Timeout: time.Minute}); err != nil {
							t.Fatal(err)
						}
					} else if ev.Result.Outcome != fumehood.Lost || !ev.Result.CausedInside || ev.Result.Leaked || ev.Result.Stdout.Text() != "begun\n" {
						t.Errorf("got %+v", ev.Result)
					}
				}
				if got := sh(t, sb, "ps ax | grep -c '[s]leep 1000'; true"); got != "0" { // checked before the next command of that user
					t.Errorf("%s of its processes are still running", got)
				}
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"id", "-un"}, User: "tester", Timeout: time.Minute})
				if err != nil || !res.Success() || strings.TrimSpace(res.Stdout.Text()) != "tester" {
					t.Errorf("the next command: %+v, %v", res, err)
				}
				o.gone(t, nil)
			}
		})
	}
}

// TestTamper_descriptors closes the descriptors of all processes that could see and kill the
// command's processes.
func TestTamper_descriptors(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "tester"} {
		t.Run("as "+user, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, unfiltered), fumehood.Spec{Image: debian, User: user})
			proc, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", `setsid sleep 1000 &
				for p in /proc/[0-9]*; do test $p = /proc/$$ || prlimit --pid ${p#/proc/} --nofile=0:0; done; echo blind; sleep 1000`}, Grace: fumehood.NoGrace})
			if err != nil {
				t.Fatal(err)
			}
			for ev, err := range proc.Events() {
				if err != nil || ev.Stream == fumehood.Stdout && strings.Contains(string(ev.Data), "blind") {
					break
				}
			}
			if err := proc.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if res, err := proc.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost || !res.Leaked {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// TestTamper_limits changes the limits of the processes that will start the next commands.
func TestTamper_limits(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "tester"} {
		t.Run("as "+user, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, unfiltered), fumehood.Spec{Image: debian, User: user})
			limits := func() map[string]bool {
				got := map[string]bool{}
				var mu sync.Mutex
				var all sync.WaitGroup
				for range 4 { // run at once, so that as many workers are idle later
					all.Go(func() {
						text := sh(t, sb, "sleep 0.2; cat /proc/self/limits")
						mu.Lock()
						defer mu.Unlock()
						got[text] = true
					})
				}
				all.Wait()
				return got
			}
			before := limits()
			if len(before) != 1 {
				t.Fatalf("commands have different limits: %v", before)
			}
			sh(t, sb, `for p in /proc/[0-9]*; do
				case "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" in *guest\ worker*) prlimit --pid ${p#/proc/} --fsize=0:0 --nofile=9:9; echo changed;; esac
			done | grep -c changed`)
			if after := limits(); !maps.Equal(after, before) {
				t.Errorf("the limits were %v, and are %v", before, after)
			}
		})
	}
}

// TestTamper_guest lowers the limits of the process that starts commands and reads files.
func TestTamper_rootFolder(t *testing.T) {
	t.Parallel()
	conformance.CheckUnsearchable(t, start(t, newProvider(t, unfiltered), fumehood.Spec{Image: debian}))
}

func TestTamper_guest(t *testing.T) {
	t.Parallel()
	for user, script := range map[string]string{"": "$(guests 0)", "tester": "$(guests 1000)"} {
		for _, files := range []string{"0:0", "3"} { // 3 is the soft limit alone
			t.Run("as "+user+" to "+files, func(t *testing.T) {
				t.Parallel()
				sb := start(t, newProvider(t, unfiltered), fumehood.Spec{Image: debian, User: user})
				sh(t, sb, guestsOfID+"for p in "+script+"; do prlimit --pid $p --nofile="+files+"; done")
				_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
				t.Log(err)
				if errors.Is(err, fumehood.ErrInfrastructure) || !errors.Is(err, fumehood.ErrBroken) {
					t.Errorf("a command: %v", err)
				}
				_, err = sb.ReadFile(t.Context(), "/etc/passwd", fumehood.ReadOptions{})
				t.Log(err)
				if err == nil || errors.Is(err, fumehood.ErrInfrastructure) || errors.Is(err, fumehood.ErrUnavailable) {
					t.Errorf("a file: %v", err)
				}
			})
		}
	}
}
