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
	"github.com/fumehood/fumehood/internal/tier"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/conformance/probe"
	"github.com/fumehood/fumehood/provider/local"
)

const column = "local"

// exceptionsHere is the exceptions where a guest supervises the commands.
func exceptionsHere() map[string]conformance.Exception {
	return map[string]conformance.Exception{"rlimits/a command starts no more processes than its user's limit": ownProcesses}
}

// ownProcesses is about a limit that the kernel keeps by user: here that is who runs the suite.
var ownProcesses = conformance.Exception{
	Reason: "commands run as the user who runs fumehood, all of whose processes count; ErrUnsupported for root",
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

// family is a command that prints the ids of its two processes, of which one is in a session of its own.
const family = `setsid sleep 1000 & echo $! $$; exec sleep 1000`

// supervisor is the shell's expression for the guest: the parent of the worker that started the shell.
const supervisor = `$(cut -d ' ' -f 4 /proc/$PPID/stat)`

// hostEnv makes this program a host that is to be killed: it holds a StateDir.
const hostEnv = "FUMEHOOD_TEST_LOCAL_HOST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		os.Exit(host(dir))
	}
	os.Exit(m.Run())
}

// host runs a command, passes on what it prints, and waits to be killed.
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
		_, _ = os.Stdout.Write(ev.Data) // who reads it waits for it
	}
	return 4
}

// idsIn reads the process ids of a line.
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
		t.Fatalf("there is no process id in %q", line)
	}
	return pids
}

// alive are those of the processes that are there, zombies included.
func alive(pids []int) (there []int) {
	for _, pid := range pids {
		if !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			there = append(there, pid)
		}
	}
	return there
}

func TestAHostThatIsKilledLeavesNoProcess(t *testing.T) {
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
	_ = cmd.Wait() // it was killed
	pids := idsIn(t, line)
	conformance.Eventually(t, "the processes have ended", func() bool { return len(alive(pids)) == 0 })
	// So that its folder, which the next clean-up removes, is no place where something still runs.
	p := newProvider(t, local.Options{StateDir: state})
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
}

func TestClosingEndsWhatOutlivedItsCommand(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", `trap '' TERM HUP; setsid sleep 1000 >/dev/null 2>&1 & echo $!`}})
	if err != nil {
		t.Fatal(err)
	}
	pids := idsIn(t, res.Stdout.Text())
	if len(alive(pids)) != 1 {
		t.Fatalf("%v does not run", pids)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := alive(pids); len(left) > 0 {
		t.Errorf("%v outlived the sandbox", left)
	}
}

func TestAKilledCommandIsSaidToBeKilledAndWhatItUsedIsTold(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	const used = 100 * time.Millisecond
	cmd := fumehood.Cmd{Args: []string{"sh", "-c", `setsid sleep 1000 & echo $! $$; while :; do :; done`}}
	var res *fumehood.Result
	for cmd.Timeout = time.Second / 4; ; cmd.Timeout *= 3 { // longer where the machine is so busy that it has used nothing yet
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
		t.Errorf("it used %+v", u)
	}
}

func TestACommandCanStopItsSupervisorButNotTheSandboxesEnd(t *testing.T) {
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

// tamper runs a shell's script beside a process in a session of its own, and returns the ids of both. The
// script begins when these are known.
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

func TestACommandThatKillsItsSupervisorLosesTheSandbox(t *testing.T) {
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
	conformance.Eventually(t, "its worker ends the command", func() bool { return len(alive(pids)) == 0 })
	_, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if !strings.Contains(err.Error(), "killed") {
		t.Errorf("the error does not say why: %v", err)
	}
	if err := sb.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "may still run") {
		t.Errorf("closing says %v", err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestManySandboxesStartAtOnce(t *testing.T) {
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

func TestAStateDirThatIsMountedNoexecIsSaidToBeThat(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := unix.Mount("none", state, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Skip("only root can mount: ", err)
	}
	t.Cleanup(func() {
		// Detached: a process that a test beside this one starts has a copy of each descriptor of ours until it runs its program.
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

func TestAKeptSandboxKeepsNoProgramOfOurs(t *testing.T) {
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
		t.Errorf("there is %v, %v", folder, err)
	}
}

func TestOutputComesAfterTheWordThatItsCommandRuns(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	rounds := tier.Pick(t, 10, 30, 30)
	var crowd sync.WaitGroup
	for range 32 { // so that a guest finds a command's output and that it has started at the same time
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
