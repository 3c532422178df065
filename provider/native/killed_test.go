//go:build linux && (amd64 || arm64)

package native_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// Variables for an owner that is killed: its phase, its folder, the prefix of its sandboxes' names, whether it has a
// reaper, the runtime, and whether they are in user namespaces.
const (
	phaseVar  = "FUMEHOOD_TEST_PHASE"
	dirVar    = "FUMEHOOD_TEST_DIR"
	prefixVar = "FUMEHOOD_TEST_PREFIX"
	aloneVar  = "FUMEHOOD_TEST_ALONE"
	ociVar    = "FUMEHOOD_TEST_OCI_RUNTIME"
	usersVar  = "FUMEHOOD_TEST_USER_NAMESPACE"
)

// killed is what an owner does when it is killed.
type killed struct {
	ctx   context.Context
	p     *native.Provider
	count int
}

func (k *killed) start() fumehood.Sandbox { return k.startWith(fumehood.Network{}) }

func (k *killed) startWith(n fumehood.Network) fumehood.Sandbox {
	k.count++
	sb, err := k.p.Start(k.ctx, fumehood.Spec{Image: busybox, Name: fmt.Sprintf("%s-%d", os.Getenv(prefixVar), k.count), Network: n})
	k.check(err)
	return sb
}

func (k *killed) keep() fumehood.Sandbox {
	k.count++
	sb, err := k.p.Start(k.ctx, fumehood.Spec{Image: busybox, Keep: true, Name: fmt.Sprintf("%s-%d", os.Getenv(prefixVar), k.count)})
	k.check(err)
	return sb
}

func (k *killed) check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// killedPhases are the phases by name. The owner is killed at a random moment after it calls now.
var killedPhases = map[string]func(k *killed, now func()){
	"first start": func(k *killed, now func()) { now(); k.start() },
	"start and close": func(k *killed, now func()) {
		k.start()
		now()
		for {
			k.check(k.start().Close(k.ctx))
		}
	},
	"disk": func(k *killed, now func()) {
		now()
		for {
			sb, err := k.p.Start(k.ctx, fumehood.Spec{
				Image: busybox, Name: os.Getenv(prefixVar) + "-disk", Limits: fumehood.Limits{Memory: 64 << 20, Disk: 1 << 30},
			})
			k.check(err)
			_, err = sb.Exec(k.ctx, fumehood.Cmd{Args: []string{"dd", "if=/dev/zero", "of=/x", "bs=1M", "count=8"}})
			k.check(errors.Join(err, sb.Close(k.ctx)))
		}
	},
	"commands": func(k *killed, now func()) {
		sb := k.start()
		for range 3 {
			_, err := sb.Start(k.ctx, fumehood.Cmd{Args: []string{"sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & sleep 1000"}})
			k.check(err)
		}
		now()
		for {
			_, err := sb.Exec(k.ctx, fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1000 & true"}})
			k.check(err)
		}
	},
	"other users": func(k *killed, now func()) {
		sb := k.start()
		now()
		for uid := 1; ; uid++ {
			_, err := sb.As(strconv.Itoa(uid)).Exec(k.ctx, fumehood.Cmd{Args: []string{"true"}})
			k.check(err)
		}
	},
	"close of many": func(k *killed, now func()) {
		for range 4 {
			k.start()
		}
		now()
		k.check(k.p.Close(k.ctx))
	},
	"kept commands": func(k *killed, now func()) {
		sb := k.keep()
		for _, user := range []string{"", "7"} {
			_, err := sb.Start(k.ctx, fumehood.Cmd{
				Args:   []string{"sh", "-c", "seq 1 500; while [ ! -e /go ]; do sleep 0.01; done; seq 501 1000; echo warned >&2; exit 5"},
				Detach: true, User: user,
			})
			k.check(err)
		}
		now()
		for {
			_, err := sb.Exec(k.ctx, fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1000 & true"}})
			k.check(err)
		}
	},
	"kept start": func(k *killed, now func()) {
		now()
		for {
			k.keep()
		}
	},
	"network": func(k *killed, now func()) {
		k.startWith(bridge)
		now()
		for {
			k.check(k.startWith(bridge).Close(k.ctx))
		}
	},
	"project": func(k *killed, now func()) {
		file := filepath.Join(os.Getenv(dirVar), os.Getenv(prefixVar)+".yaml")
		k.check(os.WriteFile(file, []byte(conformance.Shopping(busybox, "7")), 0o600))
		now()
		for {
			sb, err := k.p.Start(k.ctx, fumehood.Spec{Name: os.Getenv(prefixVar) + "-project", Compose: &fumehood.Compose{Files: []string{file}}})
			k.check(err)
			k.check(sb.Close(k.ctx))
		}
	},
	"frozen": func(k *killed, now func()) {
		sb := k.start()
		now()
		for {
			thaw, err := sb.Freeze(k.ctx)
			k.check(err)
			<-time.After(5 * time.Millisecond)
			k.check(thaw(k.ctx))
		}
	},
}

// withoutRuntime are the phases of what a sandbox of a runtime cannot have.
var withoutRuntime = []string{"kept commands", "kept start", "network", "project"}

// killedOwner runs in the process that is killed. It only returns when its phase has ended before.
func killedOwner(phase string) {
	k := &killed{ctx: context.Background()}
	dir := os.Getenv(dirVar)
	var err error
	k.p, err = native.New(k.ctx, native.Options{
		StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"), NoReaper: os.Getenv(aloneVar) != "", Runtime: os.Getenv(ociVar),
		UserNamespace: os.Getenv(usersVar) != "",
	})
	k.check(err)
	now := func() { fmt.Println("now") }
	if phase == journaled {
		k.journaled(now)
	}
	killedPhases[phase](k, now)
	<-time.After(time.Minute)
}

// leftovers lists what exists of sandboxes whose names have a prefix and which a provider with the folder dir made.
func leftovers(t *testing.T, dir, prefix string) (left []string) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(dir, "state", "*"), "/sys/fs/cgroup/*/fumehood/" + prefix + "-*", "/sys/fs/cgroup/fumehood/" + prefix + "-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	left = append(left, loops(t, dir)...)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		left = append(left, "a mount")
	}
	var guests []uint64 // inodes of the guest's program, which only these sandboxes use
	programs, _ := filepath.Glob(filepath.Join(dir, "cache", "guest", "*", "guest"))
	for _, file := range programs {
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil {
			t.Fatal(err)
		}
		guests = append(guests, st.Ino)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		var st unix.Stat_t
		groups, _ := os.ReadFile(p + "/cgroup") // empty if it has ended
		if strings.Contains(string(groups), "/fumehood/"+prefix+"-") || unix.Stat(p+"/exe", &st) == nil && slices.Contains(guests, st.Ino) {
			args, _ := os.ReadFile(p + "/cmdline")
			left = append(left, fmt.Sprintf("%s %q", p, args))
		}
	}
	return left
}

// removeComplete removes the kept sandboxes of an owner that was killed while it started some. They must work.
func removeComplete(t *testing.T, p *native.Provider) {
	all, err := p.Kept(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, k := range all {
		sb, err := p.Open(t.Context(), k.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		answers(t, sb)
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		removeKept(t.Context(), t, p, k.Name)
	}
}

// TestProvider_killed kills owners of sandboxes in each phase. Nothing of their sandboxes may be left.
func TestProvider_killed(t *testing.T) {
	t.Parallel()
	killOwners(t, native.Options{}, tier.Pick(t, 33, 44, 330), nil)
}

func TestProvider_killed_userNamespace(t *testing.T) {
	t.Parallel()
	killOwners(t, native.Options{UserNamespace: true}, tier.Pick(t, 0, 0, 110), nil)
}

// killOwners kills owners of sandboxes, in turn in each phase but those without.
func killOwners(t *testing.T, opts native.Options, rounds int, without []string) {
	t.Helper()
	dir := t.TempDir()
	opts.StateDir, opts.CacheDir = filepath.Join(dir, "state"), filepath.Join(dir, "cache")
	p := newProvider(t, opts)
	if err := start(t, p, fumehood.Spec{Image: busybox}).Close(t.Context()); err != nil { // fetches the image
		t.Fatal(err)
	}
	phases := slices.Sorted(maps.Keys(killedPhases))
	phases = slices.DeleteFunc(phases, func(phase string) bool { return slices.Contains(without, phase) })
	ways := []string{"reaper", "cleanup", "killed reaper"}
	env := []string{ociVar + "=" + opts.Runtime}
	if opts.UserNamespace {
		env = append(env, usersVar+"=1")
	}
	for round := range rounds {
		phase, way := phases[round%len(phases)], ways[round/len(phases)%len(ways)]
		t.Run(phase+" "+way, func(t *testing.T) { killOwner(t, p, dir, phase, way, env) })
	}
}

// killOwner starts an owner, kills it, and checks that everything of it is removed.
func killOwner(t *testing.T, p *native.Provider, dir, phase, way string, env []string) {
	if phase == "network" {
		needNetwork(t)
	}
	prefix := "k" + strings.ToLower(rand.Text()[:10])
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), phaseVar+"="+phase, dirVar+"="+dir, prefixVar+"="+prefix)
	cmd.Env = append(cmd.Env, env...)
	if way == "cleanup" {
		cmd.Env = append(cmd.Env, aloneVar+"=1")
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = cmd.Process.Kill() // may be dead already
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "now" {
		t.Fatalf("the owner says %q: %v", lines.Text(), lines.Err())
	}
	if !slices.Contains([]string{"first start", "kept start", "disk", "close of many", "project"}, phase) && len(leftovers(t, dir, prefix)) == 0 {
		t.Error("no leftovers are found while the owner runs")
	}
	most := 60_000
	if phase == "project" { // it takes longer
		most *= 8
	}
	<-time.After(time.Duration(mathrand.IntN(most)) * time.Microsecond) //nolint:gosec // not a secret
	if way == "killed reaper" {
		for _, pid := range conformance.Reapers(cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL) // may have ended
		}
	}
	kill()
	if way != "reaper" {
		if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
			t.Error(err)
		}
	}
	if strings.HasPrefix(phase, "kept ") {
		removeComplete(t, p)
	}
	// A process that is not in a control group yet ends by itself. A reaper that was starting works at the same time.
	conformance.Eventually(t, "everything is removed", func() bool { return len(leftovers(t, dir, prefix)) == 0 })
}
