//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// racer looks for processes with more rights than its own, and tries to get hold of each of them until /tmp/stop exists.
// It prints what it reached, and at its end how many it met. A process of its own kind is the control.
const racer = prelude + `
def tries(pid):
    at = "/proc/%s/" % pid
    for f in ("mem", "fd/0", "fd/2", "fd/3", "environ", "exe", "root/.", "cwd/.", "maps"):
        try: os.close(os.open(at + f, os.O_RDONLY | os.O_NONBLOCK)); yield f
        except OSError: pass
    if libc.syscall(NR["ptrace"], 0x4206, int(pid), 0, 0) == 0: yield "ptrace" # it is let go at this process's end
control = subprocess.Popen(["sleep", "1000"])
assert {"mem", "environ", "root/."} <= set(tries(control.pid)), list(tries(control.pid))
control.kill()
met, known = set(), set(os.listdir("/proc"))
open("/tmp/ready-%d" % os.getuid(), "w").close()
while not os.path.exists("/tmp/stop"):
    for pid in set(os.listdir("/proc")) - known:
        if not pid.isdigit(): continue
        try:
            args = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")
            if args[0] != b"/.fumehood/guest" or args[1] != b"join": continue
            met.add(pid)
            for f in tries(pid):
                # A process that has become another one meanwhile is no success.
                if b"join" in open("/proc/%s/cmdline" % pid, "rb").read(): print("reached", f, flush=True)
        except (OSError, IndexError): pass
print("met", len(met))
`

// A guest of another user starts with all rights in a sandbox whose programs already run. They must not get hold of it.
func TestSandbox_As_race(t *testing.T) {
	t.Parallel()
	// The guest of each user has some processes and threads.
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian, Limits: fumehood.Limits{PIDs: 20_000}})
	numbers := fmt.Sprintf(`{"ptrace": %d}`, unix.SYS_PTRACE)
	results := make(chan string, 2)
	for _, user := range []string{"0", "1000"} {
		go func() {
			res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{
				Args: []string{"python3", "-c", racer}, Timeout: 2 * time.Minute, Env: map[string]string{"NR": numbers, "HOST": "{}"},
			})
			if err != nil {
				results <- err.Error()
				return
			}
			results <- res.Stdout.Text() + res.Stderr.Text()
		}()
	}
	conformance.Eventually(t, "the attackers run", func() bool {
		_, err := sb.Stat(t.Context(), "/tmp/ready-0")
		_, err2 := sb.Stat(t.Context(), "/tmp/ready-1000")
		return err == nil && err2 == nil
	})
	for i := range tier.Pick(t, 20, 40, 200) {
		if got := run(t, sb.As(fmt.Sprintf("%d:1000", 2000+i%50)), "sed -n 's/^NoNewPrivs:.//p' /proc/self/status"); got != "1" {
			t.Errorf("got %q", got)
		}
		if i%2 == 0 { // the attackers' own users
			run(t, sb.As([]string{"1000:", "0:"}[i/2%2]+fmt.Sprint(i)), "true")
		}
	}
	run(t, sb, "touch /tmp/stop")
	for range 2 {
		got := <-results
		var met int
		if _, err := fmt.Sscanf(got, "met %d", &met); err != nil || met == 0 {
			t.Errorf("an attacker: %s", got)
		}
	}
}

// workerRacer kills the processes that own commands, and tries to get hold of the files of each that is started instead, until
// /tmp/stop exists. It prints the files of control groups that it opened, and at its end how many processes it killed.
const workerRacer = `
import os, signal
killed, own = 0, (os.getpid(), os.getppid())
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/stop"):
    for pid in os.listdir("/proc"):
        try:
            if pid.isdigit() and int(pid) not in own and open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")[1:2] == [b"worker"]:
                os.kill(int(pid), signal.SIGKILL); killed += 1
        except OSError: pass
    for attempt in range(2000):
        if attempt % 20 == 0: last = int(open("/proc/loadavg").read().split()[-1])
        for pid in range(last + 1, last + 4):
            try: fd = os.open("/proc/%d/fd/5" % pid, os.O_WRONLY)
            except OSError: continue
            to = os.readlink("/proc/self/fd/%d" % fd)
            if to.endswith("/tasks") or to.endswith("/cgroup.threads"): print("reached", to, flush=True)
            os.close(fd)
print("killed", killed)
`

// A process that owns a command can move to the control group that does not limit programs. Root's commands must not get hold of
// one, not even while it starts.
func TestExec_workerRace(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian, User: "root"})
	result := make(chan string, 1)
	go func() {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", workerRacer}, Timeout: 2 * time.Minute})
		if err != nil {
			result <- err.Error()
			return
		}
		result <- res.Stdout.Text() + res.Stderr.Text()
	}()
	conformance.Eventually(t, "the attacker runs", func() bool { _, err := sb.Stat(t.Context(), "/tmp/ready"); return err == nil })
	for range tier.Pick(t, 100, 200, 500) {
		_, _ = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}) // it may be killed
	}
	if err := sb.WriteFile(t.Context(), "/tmp/stop", nil, fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	got := <-result
	var killed int
	if _, err := fmt.Sscanf(got, "killed %d", &killed); err != nil || killed == 0 {
		t.Errorf("the attacker: %s", got)
	}
}

// Root in a sandbox may stop the processes of its users while they start. Its caller does not wait forever.
func TestSandbox_As_stopped(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI) // it waits for the limit of a start
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian})
	const stopper = `
import os, signal
known = set(os.listdir("/proc"))
open("/tmp/ready", "w").close()
while True:
    for pid in set(os.listdir("/proc")) - known:
        try: os.kill(int(pid), signal.SIGSTOP); open("/tmp/stopped", "w").close()
        except (OSError, ValueError): pass
`
	attacker, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", stopper}})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the attacker runs", func() bool { _, err := sb.Stat(t.Context(), "/tmp/ready"); return err == nil })
	var all sync.WaitGroup
	for n := range 20 { // each is stopped in another step
		all.Go(func() {
			began := time.Now()
			_, err := sb.As(strconv.Itoa(1000+n)).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, Timeout: 10 * time.Second})
			if took := time.Since(began); took > 90*time.Second { // the limits of a start and of the command, with reserve
				t.Errorf("it took %v: %v", took, err)
			}
		})
	}
	all.Wait()
	if err := attacker.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if got := run(t, sb, "ls /tmp/stopped"); got != "/tmp/stopped" {
		t.Errorf("got %q", got)
	}
}

// No working directory leads out through a descriptor, of the command's or of other processes.
func TestCmd_Dir_descriptors(t *testing.T) {
	t.Parallel()
	marker, _ := markerFile(t)
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0) // without CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox})
	for _, user := range []string{"0", "1000"} {
		for n := range 32 {
			for _, process := range []string{"self", "1"} {
				res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"cat", "." + marker}, Dir: fmt.Sprintf("/proc/%s/fd/%d", process, n)})
				if err == nil && res.Success() {
					t.Errorf("descriptor %d of %s leads to the host: %s", n, process, res.Stdout.Text())
				}
			}
		}
	}
}

// The source of a mount must be what was checked, even if somebody replaces it meanwhile.
func TestProvider_Start_swappedMount(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	dir := t.TempDir()
	path := filepath.Join(dir, "above", "etc")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "checked"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		aside := filepath.Join(dir, "aside")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			at, to := path, "/etc" // which may not be mounted
			if i%2 == 0 {
				at, to = filepath.Dir(path), "/"
			}
			if errors.Join(os.Rename(at, aside), os.Symlink(to, at), os.Remove(at), os.Rename(aside, at)) != nil {
				t.Error("the swapper fails")
				return
			}
		}
	})
	defer func() { close(stop); swapper.Wait() }()
	started, failed := 0, 0
	for i := 0; i < tier.Pick(t, 30, 100, 1000) || started == 0 && i < 5000; i++ {
		sb, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: path, Container: "/m"}}})
		if err != nil {
			failed++
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("got %v", err)
			}
			continue
		}
		started++
		if got := run(t, sb, "ls /m"); got != "checked" {
			t.Errorf("it mounted a folder with %q", got)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d started, %d failed", started, failed)
}
