//go:build amd64 || arm64

package local_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/test/probe"
	"github.com/fumehood/fumehood/test/tier"
)

const column = "local"

// exceptionsHere returns the exceptions of systems on which a guest supervises the commands.
func exceptionsHere() map[string]conformance.Exception {
	return map[string]conformance.Exception{"rlimits/processes of a user are limited": ownProcesses}
}

// ownProcesses covers a limit that the kernel counts per user. Here that is the user who runs the suite.
var ownProcesses = conformance.Exception{
	Reason: "all processes of the host's user count; ErrUnsupported for root",
	Check: func(t *testing.T, c *conformance.Case) {
		forks := func(limit int64) fumehood.Cmd {
			cmd := c.Probe("append", c.Path("ran"), "x", probe.Then, "fork", "30")
			cmd.Rlimits.Processes = limit
			return cmd
		}
		if os.Getuid() == 0 {
			conformance.Refuses(func(*conformance.Case) fumehood.Cmd { return forks(1000) })(t, c)
			return
		}
		if res, err := c.Sandbox.Exec(t.Context(), forks(1)); err == nil && res.Success() {
			t.Error("under a limit of 1 it started 30 processes")
		}
		c.Succeed(t, forks(100_000))
	},
}

// family is a command that prints the pids of its two processes. One of them is in its own session.
const family = `setsid sleep 1000 & echo $! $$; exec sleep 1000`

// supervisor is a shell expression for the pid of the guest, the parent of the worker that started the shell.
const supervisor = `$(cut -d ' ' -f 4 /proc/$PPID/stat)`

// hostEnv makes this program a host that the test kills. Its value is a StateDir.
const hostEnv = "FUMEHOOD_TEST_LOCAL_HOST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		os.Exit(host(dir))
	}
	os.Exit(m.Run())
}

// host runs a command, forwards its output, and waits to be killed.
func host(dir string) int {
	ctx := context.Background()
	p, err := local.New(local.Options{StateDir: dir})
	if err != nil {
		return 1
	}
	sb, err := p.Start(ctx, fumehood.Spec{})
	if err != nil {
		return 2
	}
	for ev, err := range sb.Stream(ctx, fumehood.Cmd{Args: []string{"sh", "-c", family}}) {
		if err != nil {
			return 3
		}
		_, _ = os.Stdout.Write(ev.Data) // the test waits for this output
	}
	return 4
}

// idsIn returns the process ids in a line.
func idsIn(t *testing.T, line string) (pids []int) {
	t.Helper()
	for f := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		t.Fatalf("no process id in %q", line)
	}
	return pids
}

// alive returns those of the processes that exist, including zombies.
func alive(pids []int) (there []int) {
	for _, pid := range pids {
		if !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			there = append(there, pid)
		}
	}
	return there
}

func TestProvider_hostKilled(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"="+state)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if kerr := cmd.Process.Kill(); err != nil || kerr != nil {
		t.Fatal(line, err, kerr)
	}
	_ = cmd.Wait() // always an error: the process was killed
	pids := idsIn(t, line)
	conformance.Eventually(t, "the processes have ended", func() bool { return len(alive(pids)) == 0 })
	// Nothing runs any more in its folder, which this cleanup removes.
	p := newProvider(t, local.Options{StateDir: state})
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
}

func TestClose_outlivingProcess(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", `trap '' TERM HUP; setsid sleep 1000 >/dev/null 2>&1 & echo $!`}})
	if err != nil {
		t.Fatal(err)
	}
	pids := idsIn(t, res.Stdout.Text())
	if len(alive(pids)) != 1 {
		t.Fatalf("process %v is not running", pids)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := alive(pids); len(left) > 0 {
		t.Errorf("%v outlived the sandbox", left)
	}
}

func TestExec_timeout(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	const used = 100 * time.Millisecond
	cmd := fumehood.Cmd{Args: []string{"sh", "-c", `setsid sleep 1000 & echo $! $$; while :; do :; done`}}
	var res *fumehood.Result
	for cmd.Timeout = time.Second / 4; ; cmd.Timeout *= 3 { // longer if a busy machine gave it no processor time
		var err error
		if res, err = sb.Exec(t.Context(), cmd); err != nil || res.Outcome != fumehood.TimedOut || res.Leaked {
			t.Fatalf("got %+v, %v", res, err)
		}
		if res.Stdout.Total > 0 && res.Usage.User+res.Usage.System >= used || cmd.Timeout > time.Minute {
			break
		}
	}
	if left := alive(idsIn(t, res.Stdout.Text())); len(left) > 0 {
		t.Errorf("%v outlived the command", left)
	}
	if u := res.Usage; u.User+u.System < used || u.MaxRSS < 100<<10 || u.MemoryPeak != 0 || u.OOMKills != 0 || u.PIDsLimits != 0 {
		t.Errorf("usage %+v", u)
	}
}

func TestClose_supervisorStopped(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	_, pids := tamper(t, sb, `kill -STOP `+supervisor+`; : >stopped; exec sleep 1000`)
	conformance.Eventually(t, "the supervisor is stopped", func() bool {
		_, err := os.Stat(filepath.Join(sb.ServiceInfo().Dir, "stopped"))
		return err == nil
	})
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := alive(pids); len(left) > 0 {
		t.Errorf("%v outlived the sandbox", left)
	}
}

// tamper runs a shell script next to a process in its own session, and returns the pids of both. The script starts
// when the test knows them.
func tamper(t *testing.T, sb fumehood.Sandbox, script string) (fumehood.Process, []int) {
	t.Helper()
	p, err := sb.Start(t.Context(), fumehood.Cmd{
		Args: []string{"sh", "-c", `setsid sleep 1000 & echo $! $$; read go; ` + script}, StdinPipe: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var line string
	for ev, err := range p.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if line += string(ev.Data); strings.HasSuffix(line, "\n") {
			break
		}
	}
	if _, err := p.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return p, idsIn(t, line)
}

func TestExec_supervisorKilled(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p, err := local.New(local.Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	sb := start(t, p, fumehood.Spec{})
	proc, pids := tamper(t, sb, `kill -KILL `+supervisor+`; exec sleep 1000`)
	if res, err := proc.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost || res.Reason == "" {
		t.Errorf("got %+v, %v", res, err)
	}
	conformance.Eventually(t, "the worker has killed the command", func() bool { return len(alive(pids)) == 0 })
	_, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if !strings.Contains(err.Error(), "killed") {
		t.Errorf("the error lacks the reason: %v", err)
	}
	if err := sb.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "may still run") {
		t.Errorf("Close returned %v", err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStart_concurrent(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{}) // each writes a program while the others start processes
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			sb, err := p.Start(t.Context(), fumehood.Spec{})
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
	all.Wait()
}

func TestStart_noexec(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := unix.Mount("none", state, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Skip("only root can mount: ", err)
	}
	t.Cleanup(func() {
		// Detached, since a process that a parallel test starts has copies of our file descriptors until it execs its
		// program.
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p := newProvider(t, local.Options{StateDir: filepath.Join(state, "local")})
	_, err := p.Start(t.Context(), fumehood.Spec{})
	conformance.WantError(t, err, fumehood.ErrConfig, syscall.EACCES)
	if !strings.Contains(err.Error(), "noexec") {
		t.Errorf("got %v", err)
	}
}

func TestClose_keptWithoutProgram(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p, err := local.New(local.Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	start(t, p, fumehood.Spec{Name: "kept", Keep: true})
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	folder, err := os.ReadDir(filepath.Join(state, "kept"))
	if err != nil || len(folder) != 4 { // owner, kept, work, tmp
		t.Errorf("folder contains %v, %v", folder, err)
	}
}

func TestStream_startBeforeOutput(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	rounds := tier.Pick(t, 10, 30, 30)
	var crowd sync.WaitGroup
	for range 32 { // so that a guest receives a command's output and its start at the same time
		crowd.Go(func() {
			for range rounds {
				var out strings.Builder
				for ev, err := range sb.Stream(t.Context(), fumehood.Cmd{Args: []string{"echo", "hello"}}) {
					if err != nil {
						t.Error(err)
						return
					}
					out.Write(ev.Data)
				}
				if out.String() != "hello\n" {
					t.Errorf("got %q", out.String())
				}
			}
		})
	}
	crowd.Wait()
}

// All processes of a command that have ended count, whoever waited for them.
func TestUsage_processTree(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	const burn = "i=0; while test $i -lt 300000; do i=$((i+1)); done"
	alone, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", burn}})
	if err != nil || !alone.Success() {
		t.Fatalf("%+v, %v", alone, err)
	}
	used := func(r *fumehood.Result) time.Duration { return r.Usage.User + r.Usage.System }
	for name, c := range map[string]struct {
		cmd     fumehood.Cmd
		outcome fumehood.Outcome
	}{
		"orphan":         {fumehood.Cmd{Args: []string{"sh", "-c", "(setsid sh -c '" + burn + "' &); sleep 3"}, KillRest: true}, fumehood.Exited},
		"not waited for": {fumehood.Cmd{Args: []string{"sh", "-c", "(" + burn + ") & exec sleep 3"}, KillRest: true}, fumehood.Exited},
		"killed":         {fumehood.Cmd{Args: []string{"sh", "-c", "while :; do :; done & while :; do :; done & wait"}, Timeout: 3 * time.Second}, fumehood.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := sb.Exec(t.Context(), c.cmd)
			if err != nil || r.Outcome != c.outcome || used(r) < used(alone)/2 {
				t.Errorf("used %v, alone %v: %+v, %v", used(r), used(alone), r, err)
			}
		})
	}
}

// hinder returns a function that makes the removal of a sandbox fail: nil unless this user can mount.
func hinder(state string) func(*testing.T, fumehood.Sandbox) func() {
	if os.Geteuid() != 0 {
		return nil
	}
	return func(t *testing.T, sb fumehood.Sandbox) func() {
		dir := filepath.Join(state, sb.Info().Name, "busy")
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = unix.Mount("tmpfs", dir, "tmpfs", 0, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
}
