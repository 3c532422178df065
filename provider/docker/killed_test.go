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
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// phase is a point at which an owner is killed.
type phase struct {
	name string
	// request is the request to the daemon at which the owner is killed: method and path without the API version. If it
	// is empty, the owner itself reports when to kill it.
	request string
	// goesOn means that the daemon receives the request after the owner has died, as if it had not noticed. Otherwise
	// it receives the request before, and notices.
	goesOn bool
	// quick means that the tier Quick also kills the reaper in this phase.
	quick bool
	// do runs in the owner while it has sandboxes. If request is empty, it calls now when the owner is to be killed.
	do func(ctx context.Context, p *docker.Provider, arg string, now func()) error
}

// another starts one more sandbox.
func another(spec fumehood.Spec) func(context.Context, *docker.Provider, string, func()) error {
	return func(ctx context.Context, p *docker.Provider, _ string, _ func()) error {
		_, err := p.Start(ctx, spec)
		return err
	}
}

// projected starts one more sandbox with the Compose file arg.
func projected(ctx context.Context, p *docker.Provider, arg string, _ func()) error {
	_, err := p.Start(ctx, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{arg}}})
	return err
}

// otherGuest starts a sandbox with a guest of another version, which must be delivered first.
func otherGuest(ctx context.Context, p *docker.Provider, arg string, _ func()) error {
	p.OtherGuest(arg)
	_, err := p.Start(ctx, fumehood.Spec{Image: busybox})
	return err
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
	{name: "removal", request: `DELETE /containers/`, goesOn: true, do: removed},
}

const (
	phaseVar = "FUMEHOOD_TEST_PHASE"
	argVar   = "FUMEHOOD_TEST_ARG"
	manyVar  = "FUMEHOOD_TEST_MANY"
)

// killedSpeed makes a reaper wait 2 s instead of 8 s for what the daemon is still creating.
const killedSpeed = 4

// killedOwner is the process that is killed. It starts sandboxes, reports that, and runs its phase on request. It only
// returns after an error.
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
	all := append(slices.Clone(phases), journaled)
	i := slices.IndexFunc(all, func(ph phase) bool { return ph.name == os.Getenv(phaseVar) })
	err = all[i].do(ctx, p, os.Getenv(argVar), func() { say("now") })
	say(fmt.Sprint("it has ended: ", err))
}

// leftOf lists the objects of an owner in the daemon, except guest volumes.
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

// victim is an owner in a process of its own.
type victim struct {
	cmd   *exec.Cmd
	id    string
	state string
	lines *bufio.Scanner
	stdin io.Writer
}

// says waits for a line of the owner's output.
func (v *victim) says(t *testing.T, want string) {
	t.Helper()
	if !v.lines.Scan() || v.lines.Text() != want {
		t.Fatalf("the owner says %q, want %q (%v)", v.lines.Text(), want, v.lines.Err())
	}
}

// secretFile returns the path of the tests' secret.
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
	_ = v.cmd.Process.Kill() // may be dead already
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

// guestVersion returns a guest version that no other test uses, and removes its volumes at the end.
func guestVersion(t *testing.T) string {
	t.Helper()
	version := strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() { removeGuest(t, version) })
	return version
}

// removeGuest removes a guest of the test's own version if its volume was completed.
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

// TestReaper_ownerKilled kills an owner in each phase of a sandbox's life, while it has other
// sandboxes.
func TestReaper_ownerKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc to find reapers")
	}
	many := tier.Pick(t, 1, 1, 20)
	p := newProvider(t, docker.Options{})
	others := make([]fumehood.Sandbox, max(many/5, 2))
	for i := range others {
		others[i] = start(t, p, fumehood.Spec{Image: busybox})
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { // runs when all are done
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
					tier.Need(t, tier.CI) // Cleanup removes the same objects as the reaper, which is tested in every phase
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

// killedIn starts an owner with sandboxes and lets it reach a phase.
func killedIn(t *testing.T, ph phase, many int) *killing {
	t.Helper()
	e := engineOf(t)
	arg := argOf(t, ph.name)
	k := &killing{phase: ph, trap: setTrap(t, e)}
	k.victim = startVictim(t, ph.name, arg, k.trap.address, many)
	k.trap.arm(ph)
	if _, err := k.stdin.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, k.trap.caught, "the request", k.victim)
	if n := len(leftOf(t, e, k.id)); n < many {
		t.Errorf("%d objects exist, want at least %d", n, many)
	}
	pids := conformance.Reapers(k.cmd.Process.Pid)
	if len(pids) != 1 {
		t.Fatalf("reapers %v, want one", pids)
	}
	var err error
	if k.reaper, err = os.FindProcess(pids[0]); err != nil {
		t.Fatal(err)
	}
	return k
}

// reaped kills the owner, and checks that its reaper removes everything.
func (k *killing) reaped(t *testing.T) {
	t.Helper()
	e := engineOf(t)
	k.kill()
	close(k.trap.resume)
	conformance.Eventually(t, "the reaper has ended", func() bool { return conformance.HasEnded(k.reaper.Pid) })
	if left := leftOf(t, e, k.id); len(left) != 0 {
		t.Errorf("left when the reaper has ended: %q", left)
	}
	for _, folder := range []string{"docker", "owners"} {
		if got := names(t, filepath.Join(k.state, "fumehood", folder)); len(got) != 0 {
			t.Errorf("left in %s: %q", folder, got)
		}
	}
	if log, err := os.ReadFile(filepath.Join(k.state, "fumehood", "reaper.log")); err == nil {
		t.Errorf("log of the reaper: %s", log)
	}
}

// cleaned kills the owner and its reaper, and checks that the next cleanup removes everything.
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
	awaitClosed(t, k.trap.through, "the daemon's answer", k.victim)
	// The next cleanup finds objects that were created after a cleanup.
	conformance.Eventually(t, "the daemon has made what it was about to", func() bool { return k.trap.creates.Load() == 0 })
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
	if left := leftOf(t, e, k.id); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
