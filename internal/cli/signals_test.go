//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// patience is how long tests wait for an expected event.
const patience = time.Minute

// eventually polls until happened returns true. It fails the test after patience.
func eventually(t *testing.T, condition string, happened func() bool) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	limit := time.After(patience)
	for !happened() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("%s: not within %v", condition, patience)
		}
	}
}

// silentDaemon starts a server that accepts connections and never answers. It returns its address, and a channel that
// is closed at the first connection.
func silentDaemon(t *testing.T) (string, <-chan struct{}) {
	t.Helper()
	dir, err := os.MkdirTemp("", "silent") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			if conns = append(conns, conn); len(conns) == 1 {
				close(connected)
			}
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
		_ = os.RemoveAll(dir)
	})
	return "unix://" + socket, connected
}

// interrupted starts the program, sends it the signal when await returns, and checks its exit code and last message.
func interrupted(t *testing.T, cmd *exec.Cmd, sig syscall.Signal, await func()) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await()
	sent := time.Now()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	late.Stop()
	t.Logf("ended %v after the signal", time.Since(sent).Round(time.Millisecond))
	if got, want := cmd.ProcessState.ExitCode(), 128+int(sig); got != want {
		t.Errorf("exit code %d (%v), want %d\n%s", got, err, want, &stderr)
	}
	if want := "fumehood: ended by " + sig.String() + "\n"; !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("stderr is %q, want %q at the end", &stderr, want)
	}
}

func TestSignal_silentDaemon(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run", "--", "true"}, {"cleanup"}, {"doctor"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(args[0]+" "+sig.String(), func(t *testing.T) {
				t.Parallel()
				address, connected := silentDaemon(t)
				cmd, _ := program(t, args...)
				cmd.Env = append(cmd.Env, "DOCKER_HOST="+address)
				interrupted(t, cmd, sig, func() { <-connected })
			})
		}
	}
}

func TestSignal_starting(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd, dir := program(t, "run", "--", "sleep", "600")
			interrupted(t, cmd, sig, func() { awaitContainer(t, e, dir) })
		})
	}
}

// awaitContainer waits until the program that was started with dir has a container.
func awaitContainer(t *testing.T, e *engine.Client, dir string) {
	t.Helper()
	eventually(t, "a container", func() bool {
		objects, err := objectsOf(t.Context(), e, dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(objects) > 0
	})
}

func TestSignal_running(t *testing.T) {
	t.Parallel()
	needDocker(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd, _ := program(t, "run", "--", "sh", "-c", "trap '' INT TERM; echo ready; sleep 600")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			interrupted(t, cmd, sig, func() { firstLine(t, out) })
		})
	}
}

func firstLine(t *testing.T, r io.Reader) {
	t.Helper()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// manyBytes is large enough that a copy can be interrupted.
const manyBytes = 1 << 30

func TestSignal_copyIn(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	cmd, dir := program(t, "run", "--cp", "tree:/tree", "--", "sleep", "600")
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(tree, "large"), manyBytes); err != nil {
		t.Fatal(err)
	}
	interrupted(t, cmd, syscall.SIGINT, func() {
		eventually(t, "a running container", func() bool {
			objects, err := objectsOf(t.Context(), e, dir)
			return err == nil && len(objects) > 0 && objects[0].State == "running"
		})
	})
}

func TestSignal_copyOut(t *testing.T) {
	t.Parallel()
	needDocker(t)
	cmd, dir := program(t, "run", "--cp", ":/large:out", "--", "truncate", "-s", "1G", "/large")
	out := filepath.Join(dir, "out")
	interrupted(t, cmd, syscall.SIGINT, func() {
		eventually(t, "the copy", func() bool {
			_, err := os.Stat(out)
			return err == nil
		})
	})
}

// slowRemoval starts a proxy between a program and the daemon that blocks removals of the container in of. It does not
// block other removals, such as those of a dead owner's objects, which do not depend on the signal. removing receives a
// value for each blocked request.
func slowRemoval(t *testing.T, e *engine.Client) (address string, object *atomic.Pointer[engine.Object], removing <-chan struct{}) {
	t.Helper()
	object = new(atomic.Pointer[engine.Object])
	asked := make(chan struct{}, 16)
	socket := dockertest.Between(t, e, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		o := object.Load()
		if o != nil && r.Method == http.MethodDelete && (strings.HasSuffix(r.URL.Path, "/containers/"+o.ID) || strings.HasSuffix(r.URL.Path, "/containers/"+o.Name)) {
			asked <- struct{}{}
			<-r.Context().Done() // until the program has gone
			return
		}
		next.ServeHTTP(w, r)
	})
	return "unix://" + socket, object, asked
}

func TestSignal_second(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	address, object, removing := slowRemoval(t, e)
	cmd, dir := program(t, "run", "--", "sh", "-c", "echo ready; sleep 600")
	cmd.Env = append(cmd.Env, "DOCKER_HOST="+address, "FUMEHOOD_NO_REAPER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	firstLine(t, out)
	objects, err := objectsOf(t.Context(), e, dir)
	if err != nil || len(objects) != 1 {
		t.Fatalf("the sandbox has %v, %v", objects, err)
	}
	object.Store(&objects[0])
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-removing
	sent := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("exit code %d (%v), want 130", cmd.ProcessState.ExitCode(), err)
	}
	if took := time.Since(sent); took > 20*time.Second { // a removal times out after 30 seconds
		t.Errorf("it ended %v after the second signal", took)
	}
	if objects, err = objectsOf(t.Context(), e, dir); err != nil {
		t.Fatal(err)
	}
	if len(objects) != 1 {
		t.Errorf("%d objects are left, want only the container whose removal was blocked", len(objects))
	}
	for _, o := range objects {
		if err := e.Remove(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

// A signal at any moment ends the program with everything cleaned up: by the program itself, or by its reaper if the
// signal arrives before it can be caught.
func TestSignal_randomMoment(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	// A run starts and ends within this time, even on a busy machine.
	const longest = 3 * time.Second
	for i := range tier.Pick(t, 6, 10, 200) {
		sig := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[i%2]
		after := rand.N(longest)
		t.Run(fmt.Sprintf("%v after %v", sig, after), func(t *testing.T) {
			t.Parallel()
			cmd, dir := program(t, "run", "--", "sh", "-c", "echo ready; sleep 600")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-time.After(after)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // checked by its state
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if ended := ok && status.Signaled() && status.Signal() == sig; !ended && cmd.ProcessState.ExitCode() != 128+int(sig) {
				t.Errorf("the program ended with %v\n%s", cmd.ProcessState, &stderr)
			}
			objects, err := objectsOf(t.Context(), e, dir)
			if err != nil || len(objects) != 0 {
				t.Errorf("left: %v, %v", objects, err)
			}
			for _, folder := range []string{"docker", "owners"} {
				left, err := filepath.Glob(filepath.Join(dir, "state", "fumehood", folder, "*"))
				if err != nil || len(left) != 0 {
					t.Errorf("left: %q, %v", left, err)
				}
			}
		})
	}
}

// A stuck reader blocks output, but does not keep the program from exiting on a signal.
func TestSignal_stuckReader(t *testing.T) {
	t.Parallel()
	needDocker(t)
	for _, args := range [][]string{{"run", "--", "yes"}, {"run", "--json", "--", "head", "-c", "1000000", "/dev/zero"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			cmd, _ := program(t, args...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			interrupted(t, cmd, syscall.SIGTERM, func() {
				first := make([]byte, 1)
				if _, err := io.ReadFull(out, first); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestRun_brokenPipe(t *testing.T) {
	t.Parallel()
	needDocker(t)
	cmd, _ := program(t, "run", "--", "yes")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	firstLine(t, out)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d (%v), want that of a broken pipe", cmd.ProcessState.ExitCode(), err)
	}
	if strings.Contains(stderr.String(), "pipe") {
		t.Errorf("message about the pipe: %s", &stderr)
	}
}

func TestOutput_brokenPipe(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"completion", "bash"}, {"cleanup", "--provider", "local"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			cmd, _ := program(t, args...)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = w, &stderr
			if err := cmd.Run(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) {
				t.Errorf("exit code %d (%v), want that of a broken pipe\n%s", cmd.ProcessState.ExitCode(), err, &stderr)
			}
		})
	}
}

func TestOnSignal(t *testing.T) {
	quit := make(chan int, 1)
	ctx, stop := onSignal(t.Context(), func(code int) { quit <- code })
	defer stop()
	raise := func(sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
	}
	raise(syscall.SIGPIPE) // has no effect
	raise(syscall.SIGTERM)
	<-ctx.Done()
	var sig *signaled
	if !errors.As(context.Cause(ctx), &sig) || sig.exitCode() != 143 {
		t.Fatalf("the cause is %v, want SIGTERM", context.Cause(ctx))
	}
	raise(syscall.SIGINT)
	if code := <-quit; code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
