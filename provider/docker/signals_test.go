package docker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// begun starts a script and waits until it reports that it is ready.
func begun(t *testing.T, sb fumehood.Sandbox, cmd fumehood.Cmd) fumehood.Process {
	t.Helper()
	p, err := sb.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range p.Events() {
		if err != nil || ev.Result != nil {
			t.Fatalf("%+v, %v", ev.Result, err)
		}
		break
	}
	return p
}

// threeGroups starts a leader and a child in one process group, and a daemon in another.
const threeGroups = `mkfifo /tmp/ready
exec 3<>/tmp/ready # held open, else one reader takes with it what both have written
trap 'echo leader >> /tmp/heard' USR1
sh -c 'trap "echo child >> /tmp/heard; exit" USR1; echo > /tmp/ready; while :; do sleep 0.02; done' &
setsid sh -c 'trap "echo daemon >> /tmp/heard; exit" USR1; echo > /tmp/ready; while :; do sleep 0.02; done' &
read a <&3; read b <&3
echo ready
while ! grep -q leader /tmp/heard || ! grep -q child /tmp/heard; do sleep 0.02; done 2>/dev/null
exit 0`

func TestSignal_processGroup(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	p := begun(t, sb, fumehood.Cmd{Args: []string{"bash", "-c", threeGroups}, Timeout: time.Minute})
	if err := p.Signal(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || !res.Success() {
		t.Errorf("%+v, %v", res, err)
	}
	if heard := sh(t, sb, "cat /tmp/heard"); strings.Contains(heard, "daemon") {
		t.Errorf("signal received by %q", heard)
	}
}

func TestKill_grace(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	const tidies = `trap 'sleep %s; echo > /tmp/%s; exit 3' TERM; echo ready; while :; do sleep 0.02; done`
	const deaf = `trap '' TERM; echo ready; while :; do sleep 0.02; done`
	kill := func(t *testing.T, script string, grace time.Duration) (*fumehood.Result, time.Duration) {
		t.Helper()
		p := begun(t, sb, fumehood.Cmd{Args: []string{"sh", "-c", script}, Grace: grace})
		began := time.Now()
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		res, err := p.Wait(t.Context())
		if err != nil || res.Leaked {
			t.Fatalf("%+v, %v", res, err)
		}
		return res, took
	}
	if res, _ := kill(t, fmt.Sprintf(tidies, "0.1", "default"), 0); res.ExitCode != 3 || sh(t, sb, "ls /tmp") != "default" {
		t.Errorf("with the default grace: %+v", res)
	}
	if res, _ := kill(t, fmt.Sprintf(tidies, "0.8", "short"), 20*time.Millisecond); res.Signal != 9 || sh(t, sb, "ls /tmp") != "default" {
		t.Errorf("with 20 ms of grace: %+v", res)
	}
	if res, took := kill(t, deaf, 0); res.Signal != 9 || took < time.Second {
		t.Errorf("a program that ignores signals lived for %v: %+v", took, res)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", fmt.Sprintf(tidies, "0.1", "late")}, Timeout: time.Second, Grace: 20 * time.Second})
	if err != nil || res.Outcome != fumehood.TimedOut || !strings.Contains(sh(t, sb, "ls /tmp"), "late") {
		t.Errorf("a timeout: %+v, %v", res, err)
	}
}

// deepTree is a chain of processes. All of them keep the processor busy once the last one has started.
const deepTree = `
import os, time
left = 200
while left and os.fork() == 0:
    left -= 1
if not left:
    open("/tmp/go", "w")
    print("ready", flush=True)
while not os.path.exists("/tmp/go"): time.sleep(0.05)
while True: pass
`

func TestKill_deepTree(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	o := watch(t, sb)
	p := begun(t, sb, fumehood.Cmd{Args: []string{"python3", "-c", deepTree}})
	began := time.Now()
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Leaked {
		t.Errorf("%+v, %v", res, err)
	}
	t.Logf("200 processes, each the parent of the next, were killed in %v", time.Since(began))
	o.gone(t, nil)
}

const withoutKill = `services:
  default:
    image: fumehood-test/python
    command: sleep infinity
    cap_drop: [KILL]
`

// If root may not signal processes of other users, a process that has changed its user survives.
func TestKill_survivors(t *testing.T) {
	t.Parallel()
	const other = `python3 -c 'import os, time; os.setuid(1000); open("/tmp/up", "w"); time.sleep(1000)' & while ! test -e /tmp/up; do sleep 0.02; done; %s`
	for _, c := range []struct {
		then string
		wall time.Duration
		want fumehood.Outcome
	}{{"sleep 1000", 5 * time.Second, fumehood.TimedOut}, {"kill -9 $PPID; sleep 1000", time.Minute, fumehood.Lost}} {
		t.Run(string(c.want), func(t *testing.T) {
			t.Parallel() // the guest tries for 10 s
			sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, withoutKill)})
			res, err := sb.Exec(t.Context(), fumehood.Cmd{
				Args: []string{"sh", "-c", fmt.Sprintf(other, c.then)}, Timeout: c.wall, Grace: fumehood.NoGrace,
			})
			if err != nil || res.Outcome != c.want || !res.Leaked {
				t.Errorf("%s: %+v, %v", c.then, res, err)
			}
			if got := sh(t, sb, "echo alive"); got != "alive" {
				t.Errorf("the next command says %q", got)
			}
		})
	}
}

// Code under test must not read what a guest and its workers have, such as secrets.
const looks = `for p in 1 $PPID; do
	for f in environ mem maps; do head -c 1 /proc/$p/$f > /tmp/seen 2>/dev/null && test -s /tmp/seen && echo "read $f of $p"; done
	for f in exe fd/0 cwd; do readlink /proc/$p/$f > /dev/null 2>&1 && echo "followed $f of $p"; done
done
tr '\0' ' ' < /proc/1/cmdline; echo
tr '\0' ' ' < /proc/$PPID/cmdline | sed 's/[0-9][0-9]*/N/'; echo
stat -c %a /.fumehood/guest`

func TestGuest_notReadable(t *testing.T) {
	t.Parallel()
	for _, spec := range []fumehood.Spec{{Image: busybox}, {Image: busybox, User: "tester"}} {
		sb := start(t, newProvider(t, docker.Options{}), spec)
		if got, want := sh(t, sb, looks), "/.fumehood/guest serve \n/.fumehood/guest worker N \n111"; got != want {
			t.Errorf("as %q: got\n%s\nwant\n%s", spec.User, got, want)
		}
	}
}
