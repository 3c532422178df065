package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var killedPromises = []providerPromise{
	{"killed/reaper removes all", func(t *testing.T, c *ProviderCase) {
		for _, phase := range []string{"command", "files", "start"} {
			t.Run(phase, func(t *testing.T) {
				t.Parallel()
				name := c.spec().Name
				StartOwner(t, phase, c.Dir, name, true)()
				c.wantGone(t, name)
			})
		}
	}},
	{"killed/cleanup removes all without a reaper", func(t *testing.T, c *ProviderCase) {
		cleaner := c.Provider.(provider.Cleaner)
		mine := c.start(t, c.spec())
		dead, alive := c.spec().Name, c.spec().Name
		c.only(mine.Info().Name, dead, alive)
		killDead, killAlive := StartOwner(t, "command", c.Dir, dead, false), StartOwner(t, "files", c.Dir, alive, false)
		killDead()
		for _, opts := range []provider.CleanupOptions{{DryRun: true}, {}} {
			found, err := cleaner.Cleanup(t.Context(), opts)
			if err != nil || removes(found, dead) == opts.DryRun || removes(found, alive) || removes(found, mine.Info().Name) {
				t.Errorf("%+v: %+v, %v", opts, found, err)
			}
		}
		c.wantGone(t, dead)
		_, err := cleaner.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{alive}})
		WantError(t, err, fumehood.ErrConfig)
		killAlive()
		if found, err := cleaner.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil || !removes(found, alive) {
			t.Errorf("%+v, %v", found, err)
		}
		c.wantGone(t, alive)
		if _, err := mine.Stat(t.Context(), "."); err != nil {
			t.Error(err)
		}
	}},
	{"kept/detached commands outlive a killed owner", KeptOutlives},
}

// KeptOutlives checks that nothing of the detached commands is lost when the process that keeps their sandbox is killed.
func KeptOutlives(t *testing.T, c *ProviderCase) {
	name := c.spec().Name
	kill := StartOwner(t, "kept", c.Dir, name, true)
	c.removeAfter(t, name)
	kill()
	sb, err := c.Provider.(provider.Opener).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, sb, "touch /go")
	var want strings.Builder
	for n := range 1000 {
		fmt.Fprintln(&want, n+1)
	}
	ids := numbers(t, sb)
	if len(ids) != 2 {
		t.Errorf("commands %v are listed", ids)
	}
	for _, id := range ids {
		res := wantCode(t, rejoin(t, sb, id), 5)
		wantOutput(t, "stdout", res.Stdout, want.String())
		wantOutput(t, "stderr", res.Stderr, "warned\n")
	}
}

// Variables of an owner that is killed: its phase, the folder of its state, its sandbox, and whether it has a reaper.
const (
	ownerVar  = "FUMEHOOD_CONFORMANCE_OWNER"
	dirVar    = "FUMEHOOD_CONFORMANCE_DIR"
	nameVar   = "FUMEHOOD_CONFORMANCE_NAME"
	reaperVar = "FUMEHOOD_CONFORMANCE_REAPER"
)

// ownerPhases are what owners do when they are killed. An owner calls now when it may be killed.
var ownerPhases = map[string]func(ctx context.Context, p fumehood.Provider, spec fumehood.Spec, now func()) error{
	"command": func(ctx context.Context, p fumehood.Provider, spec fumehood.Spec, now func()) error {
		sb, err := p.Start(ctx, spec)
		if err != nil {
			return err
		}
		cmd := fumehood.Cmd{Args: []string{"sh", "-c", "trap '' TERM; setsid sleep 1000 & echo begun; sleep 1000; sleep 1000"}}
		for _, err := range sb.Stream(ctx, cmd) {
			if err != nil {
				return err
			}
			now()
		}
		return nil
	},
	"files": func(ctx context.Context, p fumehood.Provider, spec fumehood.Spec, now func()) error {
		sb, err := p.Start(ctx, spec)
		if err != nil {
			return err
		}
		return sb.WriteFrom(ctx, "endless", endless{sync.OnceFunc(now)}, 1<<30, fumehood.WriteOptions{})
	},
	"start": func(ctx context.Context, p fumehood.Provider, spec fumehood.Spec, now func()) error {
		for {
			sb, err := p.Start(ctx, spec)
			if err == nil {
				now()
				err = sb.Close(ctx)
			}
			if err != nil {
				return err
			}
		}
	},
	"kept": func(ctx context.Context, p fumehood.Provider, spec fumehood.Spec, now func()) error {
		spec.Keep = true
		sb, err := p.Start(ctx, spec)
		if err != nil {
			return err
		}
		for _, user := range []string{"", otherUser} {
			const script = "seq 1 500; while [ ! -e /go ]; do sleep 0.01; done; seq 501 1000; echo warned >&2; exit 5"
			if _, err := sb.Start(ctx, fumehood.Cmd{Args: []string{"sh", "-c", script}, Detach: true, User: user}); err != nil {
				return err
			}
		}
		now()
		for err == nil {
			_, err = sb.Exec(ctx, shell("sleep 1000 & true"))
		}
		return err
	},
}

// endless is endless content.
type endless struct{ begun func() }

func (e endless) Read(p []byte) (int, error) {
	e.begun()
	return min(len(p), 1), nil
}

// Owner returns false, unless StartOwner has started this process: then it runs until it is killed, or returns true after
// an error. TestMain of a package calls it, with the standard output. The owner has sandboxes of spec, of the provider
// that open returns for a folder, with or without a reaper.
func Owner(ctx context.Context, out io.Writer, spec fumehood.Spec, open func(dir string, reaper bool) (fumehood.Provider, error)) bool {
	phase := os.Getenv(ownerVar)
	if phase == "" {
		return false
	}
	p, err := open(os.Getenv(dirVar), os.Getenv(reaperVar) != "")
	if err == nil {
		spec.Name = os.Getenv(nameVar)
		err = ownerPhases[phase](ctx, p, spec, sync.OnceFunc(func() { _, _ = fmt.Fprintln(out, "now") }))
	}
	_, _ = fmt.Fprintln(out, err) // the test shows it
	return true
}

// StartOwner starts a process that owns a sandbox, in the folder and with the name, and is in a phase: "command", "files",
// "start" or "kept". The function that it returns kills the process, and waits until its reaper has ended.
func StartOwner(t *testing.T, phase, dir, name string, reaper bool) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), ownerVar+"="+phase, dirVar+"="+dir, nameVar+"="+name)
	if reaper {
		cmd.Env = append(cmd.Env, reaperVar+"=1")
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		pids := Reapers(cmd.Process.Pid)
		_ = cmd.Process.Kill() // may have ended
		_ = cmd.Wait()
		for _, pid := range pids {
			Eventually(t, "the reaper has ended", func() bool { return HasEnded(pid) })
		}
	})
	t.Cleanup(kill)
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "now" {
		t.Fatalf("the owner says %q: %v", lines.Text(), lines.Err())
	}
	if reaper && phase != "kept" && runtime.GOOS == "linux" { // a kept sandbox may need none
		Eventually(t, "the owner has a reaper", func() bool { return len(Reapers(cmd.Process.Pid)) > 0 })
	}
	return kill
}

// Reapers returns the PIDs of a process's reapers, as /proc shows them.
func Reapers(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		children, _ := os.ReadFile(f) // empty for a thread that has ended
		for child := range strings.FieldsSeq(string(children)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(comm)) == "fumehood-reaper" {
				n, _ := strconv.Atoi(child)
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// HasEnded reports whether a process has ended, including zombies.
func HasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
