package docker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// What no other provider has: replicas, and commands after the start.
func TestStart_serviceFails(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	for name, c := range map[string]struct {
		yaml  string
		ready time.Duration
		class error
		want  []string
	}{
		"the second of its containers": {`
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, healthcheck: {test: "true", interval: 1h}}
  db:
    image: fumehood-test/busybox
    command: [sh, -c, "mkdir /data/first || { echo last words; sleep 1; exit 3; }; sleep 1000"]
    healthcheck: {test: "true", interval: 1h}
    deploy: {replicas: 2}
    volumes: ["data:/data"]
volumes: {data: {}}
`, 40 * time.Second, fumehood.ErrUnavailable, []string{"wait until healthy in service db: it has exited with code 3", "last words"}},
		"a slow post_start command": {`
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, post_start: [{command: sleep 1000}]}
`, 4 * time.Second, fumehood.ErrLimit, []string{"start in service default: it has not started after 4s, which is the limit"}},
		"a program that is not there": {`
services:
  default: {image: fumehood-test/busybox, command: /nothing/there}
`, 0, fumehood.ErrUnavailable, []string{"in service default", "code 127", "/nothing/there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fumehood.Spec{Name: "fails-" + strings.ToLower(rand.Text()[:8]), Compose: project(t, c.yaml)}
			spec.Compose.ReadyTimeout = c.ready
			err := comesToNothing(t, p, spec, c.class)
			for _, want := range c.want {
				wantText(t, err, want)
			}
		})
	}
}

func TestStart_idleServiceEarly(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, `
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db: {image: fumehood-test/busybox, command: [sh, -c, "exec sleep 1000"], healthcheck: {test: nslookup default 127.0.0.11, interval: 200ms, retries: 300}}
`)})
	if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"nslookup", "db"}}); err != nil || !res.Success() {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestStart_earlyNotReady(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, `
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db:
    image: fumehood-test/busybox
    command: [sh, -c, "sleep 1; touch /data/up; exec sleep 1000"]
    healthcheck: {test: test -e /data/up, interval: 200ms, retries: 300}
    volumes: ["data:/data"]
  last:
    image: fumehood-test/busybox
    command: [sh, -c, "test -e /data/up && touch /data/order; exec sleep 1000"]
    depends_on: [default]
    volumes: ["data:/data"]
volumes: {data: {}}
`)})
	last, err := sb.Lookup("last")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := last.Exec(t.Context(), fumehood.Cmd{Args: []string{"test", "-e", "/data/order"}}); err != nil || !res.Success() {
		t.Errorf("started before db was healthy: %v, %+v", err, res)
	}
}

// stopsGuests is a shell script for a Compose file. It stops each guest as soon as it appears. It stops nothing else:
// if it stopped what runc runs before the guest, the Engine could not remove the container.
const stopsGuests = "while :; do for p in /proc/[0-9]*; do read -r c < $$p/comm; case $$c in guest) kill -STOP $${p#/proc/};; esac; done 2>/dev/null; done"

// outrun repeats try until the service that stops guests was faster than the guest, which it usually is.
func outrun(t *testing.T, try func() bool) {
	t.Helper()
	for range 5 {
		if try() {
			return
		}
	}
	t.Fatal("the guest was faster each time")
}

// canceledAfter starts a project whose start does not end by itself, cancels it, and checks that it returns soon. It
// returns false if the project came up before.
func canceledAfter(t *testing.T, p *docker.Provider, after time.Duration, yaml string) bool {
	t.Helper()
	why := errors.New("enough")
	spec := fumehood.Spec{Name: "canceled-" + strings.ToLower(rand.Text()[:8]), Compose: project(t, yaml)}
	ctx, cancel := context.WithCancelCause(t.Context())
	var canceled time.Time
	timer := time.AfterFunc(after, func() {
		canceled = time.Now()
		cancel(why)
	})
	defer timer.Stop()
	sb, err := p.Start(ctx, spec)
	if err == nil {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return false
	}
	took := time.Since(canceled)
	if !errors.Is(err, fumehood.ErrCanceled) || !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	t.Logf("back %v after the cancel", took)
	if took > 20*time.Second { // 2 s on an idle machine
		t.Errorf("back %v after the cancel", took)
	}
	if left := objectsOf(t, spec.Name); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return true
}

const guestStopped = `
services:
  default: {image: fumehood-test/busybox, command: [sh, -c, "echo no guests; ` + stopsGuests + `"]}
`

func TestStart_canceledInPhase(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	for phase, yaml := range map[string]string{
		"while post_start runs": `
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, post_start: [{command: sleep 1000}]}
`,
	} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			if !canceledAfter(t, p, 3*time.Second, yaml) {
				t.Error("it came up")
			}
		})
	}
	t.Run("while a guest does not come up", func(t *testing.T) {
		t.Parallel()
		outrun(t, func() bool { return canceledAfter(t, p, 3*time.Second, guestStopped) })
	})
}

func TestStart_guestTimeout(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	spec := fumehood.Spec{Compose: project(t, guestStopped)}
	limit := 3 * time.Second
	outrun(t, func() bool {
		spec.Compose.ReadyTimeout = limit
		sb, err := p.Start(t.Context(), spec)
		if err == nil {
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
			return false
		}
		if strings.Contains(err.Error(), "it has not started") { // the machine is busy
			limit *= 2
			return false
		}
		if !errors.Is(err, fumehood.ErrLimit) {
			t.Errorf("the class of %v is %v", err, fumehood.ClassOf(err))
		}
		for _, want := range []string{fmt.Sprintf("start the guest in service default: it does not answer after %v, which is the limit", limit), "no guests"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not contain %q", err, want)
			}
		}
		return true
	})
}

func TestExec_guestStopped(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	compose := project(t, strings.Replace(guestStopped, "default:", "hostile:", 1)+"  default: {image: fumehood-test/busybox, command: sleep infinity}\n")
	outrun(t, func() bool {
		sb := start(t, p, fumehood.Spec{Compose: compose})
		hostile, err := sb.Lookup("hostile")
		if err != nil {
			t.Fatal(err)
		}
		var res *fumehood.Result
		ended := make(chan error, 1)
		go func() {
			var err error
			res, err = hostile.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return false
		case <-time.After(3 * time.Second): // most guests start in less time
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			// On a busy machine, the guest came up after all. The command may have been running when the sandbox was removed.
			if err == nil && (res.Outcome == fumehood.Exited || res.Outcome == fumehood.Lost) {
				return false
			}
			if !errors.Is(err, fumehood.ErrUnavailable) {
				t.Errorf("got %v, %+v", err, res)
			}
		case <-time.After(10 * time.Second):
			t.Error("it goes on")
		}
		return true
	})
}

// If a guest does not answer, the start fails with diagnostics.
func TestProvider_Start_muteGuest(t *testing.T) {
	t.Parallel()
	tier.NeedDocker(t)
	dir := t.TempDir()
	const source = `package main

import (
	"os"
	"time"
)

func main() {
	os.Stderr.WriteString("it has trouble\n")
	time.Sleep(time.Hour)
}
`
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "mute"), file)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "mute"))
	if err != nil {
		t.Fatal(err)
	}
	version := "mute" + strings.ToLower(rand.Text()[:8])
	p := newProvider(t, docker.Options{})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{Caches: true}); err != nil { // of this guest only
			t.Error(err)
		}
	})
	for name, spec := range map[string]fumehood.Spec{
		"main process": {Image: busybox},
		"exec":         {Compose: project(t, twoOwnPrograms)},
		"kept":         {Image: busybox, Keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			within, err := 3*time.Second, error(nil)
			for {
				p.MuteGuest(program, version, within)
				if _, err = p.Start(t.Context(), spec); within > time.Minute || !strings.Contains(fmt.Sprint(err), "start the guest: context deadline exceeded") {
					break
				}
				within *= 2 // the daemon has not started it yet
			}
			if !errors.Is(err, fumehood.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			for _, want := range []string{fmt.Sprintf("does not answer after %v", within), "its container is running, under the runtime ", "it has trouble"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
		})
	}
}

// An exec is given up if the Engine never reports its process as started.
func TestService_Exec_neverStarted(t *testing.T) {
	t.Parallel()
	socket := dockertest.Between(t, engineOf(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, "/exec/") || !strings.HasSuffix(r.URL.Path, "/json") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ID": "x", "Running": true, "Pid": 0}`) // on an error the client notices missing data
	})
	p := newProvider(t, docker.Options{Host: "unix://" + socket, Transport: docker.TransportEngine}.Sped(3))
	sb := start(t, p, fumehood.Spec{Image: busybox})
	_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}})
	if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "has not reported within 20s that the program started") {
		t.Errorf("got %v", err)
	}
}
