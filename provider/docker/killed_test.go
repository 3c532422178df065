package docker_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/tier"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// phase is something that an owner is killed at.
type phase struct {
	name string
	// request is the one to the daemon at which it is killed: method and path, without the API's version. Empty where it
	// says itself that it is time.
	request string
	// goesOn: the daemon gets the request when the owner is dead already, as it does not notice while it makes
	// something. Else it gets it before, and notices.
	goesOn bool
	// quick: the phase is one of those in which the reaper is killed too in the tier quick.
	quick bool
	// do is done by the owner, beside the sandboxes that it has. It calls now when it is time, where no request tells.
	do func(ctx context.Context, p *docker.Provider, arg string, now func()) error
}

// another starts one more sandbox.
func another(spec fumehood.Spec) func(context.Context, *docker.Provider, string, func()) error {
	return func(ctx context.Context, p *docker.Provider, _ string, _ func()) error {
		_, err := p.Start(ctx, spec)
		return err
	}
}

// projected starts one more sandbox, of the Compose file that arg names.
func projected(ctx context.Context, p *docker.Provider, arg string, _ func()) error {
	_, err := p.Start(ctx, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{arg}}})
	return err
}

// otherGuest starts a sandbox with a guest of another version, which has to be delivered first.
func otherGuest(ctx context.Context, p *docker.Provider, arg string, _ func()) error {
	p.OtherGuest(arg)
	_, err := p.Start(ctx, fumehood.Spec{Image: busybox})
	return err
}

// commanded runs a command, and says that it is time when that has begun.
func commanded(script string) func(context.Context, *docker.Provider, string, func()) error {
	return func(ctx context.Context, p *docker.Provider, _ string, now func()) error {
		sb, err := p.Start(ctx, fumehood.Spec{Image: busybox})
		if err != nil {
			return err
		}
		for _, err := range sb.Stream(ctx, fumehood.Cmd{Args: []string{"sh", "-c", script}}) {
			if err != nil {
				return err
			}
			now()
		}
		return nil
	}
}

// filed writes a file without end, and says that it is time when the first of it is sent.
func filed(ctx context.Context, p *docker.Provider, _ string, now func()) error {
	sb, err := p.Start(ctx, fumehood.Spec{Image: busybox})
	if err != nil {
		return err
	}
	return sb.WriteFrom(ctx, "/tmp/endless", endless{sync.OnceFunc(now)}, 1<<30, fumehood.WriteOptions{})
}

// endless is content that does not end.
type endless struct{ begun func() }

func (e endless) Read(p []byte) (int, error) {
	e.begun()
	return min(len(p), 1), nil
}

func removed(ctx context.Context, p *docker.Provider, _ string, _ func()) error {
	sb, err := p.Start(ctx, fumehood.Spec{Image: busybox})
	if err != nil {
		return err
	}
	return sb.Close(ctx)
}

var phases = []phase{
	{name: "pull", request: `POST /images/create`, do: func(ctx context.Context, p *docker.Provider, arg string, _ func()) error {
		return another(fumehood.Spec{Image: arg})(ctx, p, "", nil)
	}},
	{name: "build", quick: true, request: `POST /build`, do: projected},
	{name: "guest's image", request: `POST /images/create`, goesOn: true, do: otherGuest},
	{name: "guest's volume", quick: true, request: `POST /containers/create`, goesOn: true, do: otherGuest},
	{name: "end of the guest's delivery", request: `DELETE /images/.*`, goesOn: false, do: otherGuest},
	{name: "network", request: `POST /networks/create`, goesOn: true, do: projected},
	{name: "volume", request: `POST /volumes/create`, goesOn: true, do: projected},
	{name: "create", request: `POST /containers/create`, goesOn: true, do: another(fumehood.Spec{Image: busybox})},
	{name: "create of a project", quick: true, request: `POST /containers/create`, goesOn: true, do: projected},
	{name: "start", quick: true, request: `POST /containers/[^/]*/start`, goesOn: true, do: another(fumehood.Spec{Image: busybox})},
	{name: "guest start", request: `POST /exec/[^/]*/start`, goesOn: true, do: projected},
	{name: "files", do: filed},
	{name: "set-up", do: commanded("trap '' TERM; setsid sleep 1000 & echo begun; sleep 1000")},
	{name: "command", quick: true, do: commanded("echo begun; exec sleep 1000")},
	{name: "removal", request: `DELETE /containers/`, goesOn: true, do: removed},
}

const (
	phaseVar = "FUMEHOOD_TEST_PHASE"
	argVar   = "FUMEHOOD_TEST_ARG"
	manyVar  = "FUMEHOOD_TEST_MANY"
)

// killedSpeed makes a reaper wait for 2 s instead of 8 s for what the daemon still makes.
const killedSpeed = 4

// killedOwner is the process that is killed: it starts sandboxes, says so, and does what its phase is when it is told. It
// returns when something goes wrong.
func killedOwner() {
	say := func(text string) { _, _ = os.Stdout.WriteString(text + "\n") }
	many, _ := strconv.Atoi(os.Getenv(manyVar))
	self, err := owner.Self()
	if err != nil {
		say(err.Error())
		return
	}
	say(self.String())
	ctx := context.Background()
	p, err := docker.New(ctx, docker.Options{NoSweep: true}.Sped(killedSpeed))
	errs := make(chan error, many)
	for range many {
		go func() {
			if err != nil {
				errs <- err
				return
			}
			_, err := p.Start(ctx, fumehood.Spec{Image: busybox})
			errs <- err
		}()
	}
	for range many {
		if err := <-errs; err != nil {
			say(err.Error())
			return
		}
	}
	say("alive")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return
	}
	i := slices.IndexFunc(phases, func(ph phase) bool { return ph.name == os.Getenv(phaseVar) })
	err = phases[i].do(ctx, p, os.Getenv(argVar), func() { say("now") })
	say(fmt.Sprint("it has ended: ", err))
}

// leftOf lists what there is of an owner's in the daemon, but for guests' volumes.
func leftOf(t *testing.T, e *engine.Client, id string) (left []string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	objects, err := e.Objects(ctx, owner.LabelOwner+"="+id)
	if err != nil {
		t.Fatal(err)
	}
	images, err := e.Objects(ctx, owner.LabelCache+"="+owner.GuestCache, engine.ImageKind)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range images {
		if o.Labels[owner.LabelMaker] == id {
			left = append(left, "image "+o.Name)
		}
	}
	for _, o := range objects {
		if o.Labels[owner.LabelCache] != owner.GuestCache {
			left = append(left, string(o.Kind)+" "+o.Name)
		}
	}
	return left
}

// victim is an owner that runs in a process of its own.
type victim struct {
	cmd   *exec.Cmd
	id    string
	state string
	lines *bufio.Scanner
	stdin io.Writer
}

// says waits for a line of the owner's.
func (v *victim) says(t *testing.T, want string) {
	t.Helper()
	if !v.lines.Scan() || v.lines.Text() != want {
		t.Fatalf("the owner says %q, want %q (%v)", v.lines.Text(), want, v.lines.Err())
	}
}

// reapers are the pids of the process's reapers.
func reapers(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // of a thread that has ended: none
		for _, child := range strings.Fields(string(text)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(comm)) == "fumehood-reaper" {
				n, _ := strconv.Atoi(child)
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// secretFile is where the secret of the tests is.
func secretFile(t *testing.T) string {
	t.Helper()
	file, err := owner.SecretFile()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func startVictim(t *testing.T, name, arg, address string, many int) *victim {
	t.Helper()
	tier.NeedDocker(t)
	v := &victim{cmd: exec.CommandContext(t.Context(), os.Args[0]), state: t.TempDir()}
	v.cmd.Env = append(
		os.Environ(), "FUMEHOOD_TEST_OWNER=killed", phaseVar+"="+name, argVar+"="+arg, manyVar+"="+strconv.Itoa(many),
		"DOCKER_HOST=unix://"+address, "XDG_STATE_HOME="+v.state,
		owner.SecretVariable+"="+secretFile(t),
	)
	stdout, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := v.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.stdin, v.lines = stdin, bufio.NewScanner(stdout)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.kill)
	v.lines.Scan()
	v.id = v.lines.Text()
	v.says(t, "alive")
	return v
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill() // perhaps it is dead already
	_ = v.cmd.Wait()
}

// argOf prepares what a phase needs.
func argOf(t *testing.T, name string) string {
	t.Helper()
	file := func(yaml string) string {
		return project(t, yaml).Files[0]
	}
	switch {
	case name == "pull":
		return serveImage(t).ref
	case strings.Contains(name, "guest's"):
		return guestVersion(t)
	case name == "build":
		return file(fmt.Sprintf("services: {default: {build: {dockerfile_inline: \"FROM %s\\nRUN sleep 20 && echo %d\\n\"}}}\n", busybox, time.Now().UnixNano()))
	}
	return file(fmt.Sprintf("services: {default: {image: %s, command: [sh, -c, 'sleep 1000; true'], volumes: [data:/data], networks: [one, two]}}\nvolumes: {data: {}}\nnetworks: {one: {}, two: {}}\n", busybox))
}

// guestVersion returns a version of the guest that no other test has, and removes what is made of it in the end.
func guestVersion(t *testing.T) string {
	t.Helper()
	version := strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() { removeGuest(t, version) })
	return version
}

// removeGuest removes a guest of the test's own version, where it has become complete.
func removeGuest(t *testing.T, version string) {
	t.Helper()
	e, ctx := engineOf(t), context.WithoutCancel(t.Context())
	objects, err := e.Objects(ctx, owner.LabelCache+"=guest")
	if err != nil {
		t.Error(err)
	}
	for _, o := range objects {
		if strings.HasPrefix(o.Name, "fumehood-guest-"+version) {
			if err := e.Remove(ctx, o); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNothingIsLeftOfAnOwnerThatIsKilled has an owner killed in each phase of a sandbox's life, while it has others.
func TestNothingIsLeftOfAnOwnerThatIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("it looks for reapers in /proc")
	}
	many := tier.Pick(t, 1, 4, 20)
	p := newProvider(t, docker.Options{})
	others := make([]fumehood.Sandbox, max(many/5, 2))
	for i := range others {
		others[i] = start(t, p, fumehood.Spec{Image: busybox})
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { // when all are done
		for _, sb := range others {
			if res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"echo", "alive"}, Timeout: time.Minute}); err != nil || res.Stdout.Text() != "alive\n" {
				t.Errorf("another owner's sandbox: %+v, %v", res, err)
			}
		}
	})
	t.Run("while the reaper lives", func(t *testing.T) {
		t.Parallel()
		for _, ph := range phases {
			t.Run(ph.name, func(t *testing.T) {
				t.Parallel()
				killedIn(t, ph, many).reaped(t)
			})
		}
	})
	t.Run("and the reaper too", func(t *testing.T) {
		t.Parallel()
		for _, ph := range phases {
			t.Run(ph.name, func(t *testing.T) {
				if !ph.quick {
					tier.Need(t, tier.CI) // a cleanup removes the same as the reaper, which does so in every phase
				}
				t.Parallel()
				killedIn(t, ph, tier.Pick(t, 1, 1, 5)).cleaned(t)
			})
		}
	})
}

// killing is an owner that is about to be killed.
type killing struct {
	*victim
	phase  phase
	trap   *trap
	reaper *os.Process
}

// killedIn starts an owner with sandboxes and lets it come into a phase.
func killedIn(t *testing.T, ph phase, many int) *killing {
	t.Helper()
	e := engineOf(t)
	arg := argOf(t, ph.name)
	k := &killing{phase: ph, trap: setTrap(t, e)}
	k.victim = startVictim(t, ph.name, arg, k.trap.address, many)
	if ph.request != "" {
		k.trap.arm(ph)
	}
	if _, err := k.stdin.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if ph.request == "" {
		k.says(t, "now")
	} else {
		awaitClosed(t, k.trap.caught, "the request", k.victim)
	}
	if n := len(leftOf(t, e, k.id)); n < many {
		t.Errorf("%d objects of it are there, want %d at least", n, many)
	}
	pids := reapers(t, k.cmd.Process.Pid)
	if len(pids) != 1 {
		t.Fatalf("it has the reapers %v, want one", pids)
	}
	var err error
	if k.reaper, err = os.FindProcess(pids[0]); err != nil {
		t.Fatal(err)
	}
	return k
}

// hasEnded says whether a process has ended, be it that nobody has taken note of it yet.
func hasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// reaped kills the owner; its reaper has to remove all.
func (k *killing) reaped(t *testing.T) {
	t.Helper()
	e := engineOf(t)
	k.kill()
	close(k.trap.resume)
	conformance.Eventually(t, "the reaper has ended", func() bool { return hasEnded(k.reaper.Pid) })
	if left := leftOf(t, e, k.id); len(left) != 0 {
		t.Errorf("left when the reaper has ended: %q", left)
	}
	for _, folder := range []string{"docker", "owners"} {
		if got := names(t, filepath.Join(k.state, "fumehood", folder)); len(got) != 0 {
			t.Errorf("left in %s: %q", folder, got)
		}
	}
	if log, err := os.ReadFile(filepath.Join(k.state, "fumehood", "reaper.log")); err == nil {
		t.Errorf("the reaper says %s", log)
	}
}

// cleaned kills the owner and its reaper; the next clean-up has to remove all.
func (k *killing) cleaned(t *testing.T) {
	t.Helper()
	p := newProvider(t, docker.Options{})
	p.Only(func(_, owner string) bool { return owner == k.id })
	e := engineOf(t)
	if err := k.reaper.Kill(); err != nil {
		t.Fatal(err)
	}
	k.kill()
	close(k.trap.resume)
	if k.phase.request != "" {
		awaitClosed(t, k.trap.through, "the daemon's answer", k.victim)
	}
	// What comes after a clean-up, the next one finds.
	conformance.Eventually(t, "the daemon has made what it was about to", func() bool { return k.trap.creates.Load() == 0 })
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
	if left := leftOf(t, e, k.id); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
