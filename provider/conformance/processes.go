package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// CheckManyCommands runs n commands at once in a sandbox whose limit on processes is above n. The image needs the
// program sleep. What supervises the commands must not use up the limit.
func CheckManyCommands(t *testing.T, sb fumehood.Sandbox, n int) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for range n {
		wg.Go(func() {
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sleep", "5"}})
			end := fmt.Sprint(err)
			if err == nil {
				end = fmt.Sprintf("%s %d %s", res.Outcome, res.ExitCode, res.Reason)
			}
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	wg.Wait()
	if ends["exited 0 "] != n {
		t.Errorf("%d commands at once: %v", n, ends)
	}
}

// CheckProcessLimit uses up the limit on processes of a sandbox, which is limit, and checks what later commands return. The
// image needs a shell. Users are those who run commands then.
func CheckProcessLimit(t *testing.T, sb fumehood.Sandbox, limit int, users ...string) {
	t.Helper()
	const use = `while true; do sleep 1000 & done 2>/dev/null`
	hog, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "trap '' TERM; sh -c '" + use + "'; sleep 1000 & echo full > /tmp/full; wait"}, Grace: fumehood.NoGrace})
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the processes are used up", func() bool {
		_, err := sb.ReadFile(t.Context(), "/tmp/full", fumehood.ReadOptions{})
		return err == nil
	})
	for range 3 {
		for _, user := range users {
			res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			_, named := errors.AsType[*provider.ProcessLimit](err)
			if !errors.Is(err, fumehood.ErrLimit) || errors.Is(err, fumehood.ErrUnavailable) || !named || !strings.Contains(err.Error(), fmt.Sprintf("limit of %d processes", limit)) {
				t.Fatalf("a command of %q at the limit: %+v, %v", user, res, err)
			}
		}
	}
	if _, err := sb.ReadFile(t.Context(), "/tmp/full", fumehood.ReadOptions{}); err != nil {
		t.Errorf("a file at the limit: %v", err)
	}
	if err := hog.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := hog.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Leaked {
		t.Errorf("the killed command: %+v, %v", res, err)
	}
	for _, user := range users {
		if res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, Timeout: time.Minute}); err != nil || !res.Success() {
			t.Errorf("a command of %q after the kill: %+v, %v", user, res, err)
		}
	}
}

// CheckKillAll checks KillAll in a service whose image has a shell. Users, of which "" is the service's own, run commands, and
// so does another service of the sandbox, which may be nil.
func CheckKillAll(t *testing.T, svc, other fumehood.Service, users ...string) {
	t.Helper()
	count := func(svc fumehood.Service) int { return countLeft(t, svc) }
	kill := func() {
		t.Helper()
		if err := svc.KillAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kill() // nothing is there
	var running []fumehood.Process
	for _, user := range users {
		running = append(running, leave(t, svc.As(user)))
	}
	detached, err := svc.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", stays, leftBehind}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	running = append(running, detached)
	if other != nil {
		leave(t, other)
		Eventually(t, "the other service's processes run", func() bool { return count(other) == 3 })
	}
	Eventually(t, "the processes run", func() bool { return count(svc) == 3*len(users)+1 })
	kill()
	if n := count(svc); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	for _, p := range running {
		if res, err := p.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Signal != 9 || res.Reason != "killed by the caller" || res.Leaked {
			t.Errorf("a running command: %+v, %v", res, err)
		}
	}
	for _, user := range users {
		if res, err := svc.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
			t.Errorf("a command of %q afterwards: %+v, %v", user, res, err)
		}
	}
	if other == nil {
		return
	}
	if n := count(other); n != 3 {
		t.Errorf("the other service has %d processes", n)
	}
	if err := other.KillAll(t.Context()); err != nil || count(other) != 0 {
		t.Errorf("the other service: %v", err)
	}
}

const (
	leftBehind = "left-behind" // an argument of what leave starts
	stays      = "trap '' TERM HUP; while :; do sleep 1000; done"
)

// leave starts a command, and leaves two processes of another one: one in a session of its own whose parent has ended, and one
// that is stopped.
func leave(t *testing.T, svc fumehood.Service) fumehood.Process {
	t.Helper()
	const script = `(setsid sh -c "$0" ` + leftBehind + ` & ); sh -c "$0" ` + leftBehind + ` & kill -STOP $!`
	if res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script, stays}}); err != nil || !res.Success() {
		t.Fatalf("%+v, %v", res, err)
	}
	p, err := svc.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", stays, leftBehind}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// countLeft returns how many processes of leave run in a service.
func countLeft(t *testing.T, svc fumehood.Service) (n int) {
	t.Helper()
	res, err := svc.Exec(t.Context(), shell("grep -l 'left-[b]ehind' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"))
	if err != nil || !res.Success() {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := fmt.Sscan(string(res.Stdout.Bytes), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// CheckForkBomb leaves a fork bomb behind in a sandbox whose image has Python, and whose limit on processes is limit. Commands
// then run, or are the error of that limit, and KillAll ends the bomb.
func CheckForkBomb(t *testing.T, sb fumehood.Sandbox, limit int, bomb string, users ...string) {
	t.Helper()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "import os, sys\nif os.fork() == 0:\n os.setsid()\n exec(sys.argv[1])", bomb}, StderrCap: 1000})
	if err != nil || !res.Success() {
		t.Fatalf("%+v, %v", res, err)
	}
	limited := 0
	Eventually(t, "the limit is reached", func() bool {
		_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		return errors.Is(err, fumehood.ErrLimit)
	})
	for range 50 {
		for _, user := range users {
			began := time.Now()
			res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			_, named := errors.AsType[*provider.ProcessLimit](err)
			switch {
			case err == nil && res.Success():
			case errors.Is(err, fumehood.ErrLimit) && named && strings.Contains(err.Error(), fmt.Sprintf("limit of %d processes", limit)):
				limited++
			default:
				t.Fatalf("a command of %q after %v: %+v, %v", user, time.Since(began), res, err)
			}
		}
	}
	began := time.Now()
	if err := sb.KillAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d commands reached the limit; the kill took %v", limited, 50*len(users), time.Since(began))
	for _, user := range users {
		if res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
			t.Errorf("a command of %q after the kill: %+v, %v", user, res, err)
		}
	}
}

// ForkBombs are programs in Python that use up a sandbox's processes: they hold them, fork all the time, or also end all the
// time.
var ForkBombs = map[string]string{
	"holding":  "import time\nwhile True:\n try:\n  if os.fork() == 0: time.sleep(1000)\n except OSError: time.sleep(0.01)",
	"churning": "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n try:\n  if os.fork() > 0 and os.getpid() % 3: os._exit(0)\n except OSError: pass",
	"busy":     "while True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass",
}
