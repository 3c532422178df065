package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/tier"
)

// faulty connects to the daemon through a proxy, which causes faults after a call of its Decide.
func faulty(t *testing.T, opts docker.Options) (*docker.Provider, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.Start(t, socketOf(t))
	opts.Host = proxy.Host
	p := newProvider(t, opts)
	t.Cleanup(func() {
		proxy.Decide(nil) // the final removal has no faults
		for _, fault := range slices.Sorted(maps.Keys(proxy.Counts())) {
			t.Logf("%4d x %s", proxy.Counts()[fault], fault)
		}
	})
	return p, proxy
}

// socketOf returns the daemon's socket, which a proxy needs.
func socketOf(t *testing.T) string {
	t.Helper()
	direct := engineOf(t).Endpoint()
	socket, ok := faultproxy.Socket(direct)
	if !ok {
		tier.Missing(t, tier.Quick, fmt.Errorf("the proxy only supports unix sockets, but the daemon is at %s: unset DOCKER_HOST", direct))
	}
	return socket
}

// mix causes faults in a share of the calls. It limits the number of hangs, because each takes as long as the call's
// timeout.
func mix(share float64, hangs int, faults ...faultproxy.Fault) func(string) faultproxy.Fault {
	random := rand.New(rand.NewPCG(1, 2))
	return func(string) faultproxy.Fault {
		if random.Float64() >= share {
			return faultproxy.None
		}
		f := faults[random.IntN(len(faults))]
		if f == faultproxy.Hang || f == faultproxy.HangAfter {
			if hangs--; hangs < 0 {
				f = faultproxy.Delay
			}
		}
		return f
	}
}

// isOurs reports whether an error is an infrastructure failure, not caused by the program or the user.
func isOurs(err error) bool {
	return errors.Is(err, fumehood.ErrInfrastructure) || errors.Is(err, fumehood.ErrUnavailable)
}

func TestFaults_samples(t *testing.T) {
	t.Parallel()
	samples := tier.Pick(t, 10, 20, 400)
	p, proxy := faulty(t, docker.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}.Sped(4))
	warm(t)
	proxy.Decide(mix(0.1, samples/10, faultproxy.Delay, faultproxy.ResetBefore, faultproxy.ResetAfter, faultproxy.Hang,
		faultproxy.HangAfter, faultproxy.Internal, faultproxy.Truncate))
	var next, good atomic.Int64
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= samples; i = int(next.Add(1)) {
				switch err := sample(t, p, i); {
				case err == nil:
					good.Add(1)
				case isOurs(err):
					t.Logf("sample %d: %v", i, err)
				default:
					t.Errorf("sample %d: %v, want an infrastructure error", i, err)
				}
			}
		})
	}
	all.Wait()
	proxy.Decide(nil)
	t.Logf("%d of %d samples have the result that they have without faults", good.Load(), samples)
	if int(good.Load())*100 < samples*95 {
		t.Errorf("only %d of %d samples have the right result", good.Load(), samples)
	}
	for i := range samples {
		if left := objectsOf(t, sampleName(i+1)); len(left) != 0 {
			t.Errorf("left behind: %+v", left)
		}
	}
}

func sampleName(i int) string { return fmt.Sprintf("faulty-%d", i) }

// sample starts a sandbox, runs two commands in it, writes and reads a file, and removes it. It fails the test if a
// result differs from the result without faults.
func sample(t *testing.T, p *docker.Provider, i int) (err error) {
	ctx := t.Context()
	sb, err := p.Start(ctx, fumehood.Spec{Image: busybox, Name: sampleName(i)})
	if err != nil {
		return err
	}
	defer func() {
		cerr := sb.Close(ctx)
		for n := 0; cerr != nil && n < 3; n++ { // each call has its own deadline
			cerr = sb.Close(ctx)
		}
		err = errors.Join(err, cerr)
	}()
	content := []byte(fmt.Sprint("content ", i))
	if err := sb.WriteFile(ctx, "/tmp/f", content, fumehood.WriteOptions{}); err != nil {
		return err
	}
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-c", "cat /tmp/f; exit " + fmt.Sprint(i%7)}, Timeout: time.Minute})
	switch {
	case err != nil:
		return err
	case res.Outcome == fumehood.Lost:
		return fmt.Errorf("lost: %w", fumehood.ErrInfrastructure)
	case res.Outcome != fumehood.Exited || res.ExitCode != i%7 || res.Stdout.Text() != string(content):
		t.Errorf("sample %d: %s, code %d, %q", i, res.Outcome, res.ExitCode, res.Stdout.Text())
	}
	got, err := sb.ReadFile(ctx, "/tmp/f", fumehood.ReadOptions{})
	if err == nil && string(got) != string(content) {
		t.Errorf("sample %d: read %q", i, got)
	}
	return err
}

// A command appends its number to a file. Whatever happens to the calls that hand it over, its number must be there
// once if the command has a result, and at most once otherwise.
func TestFaults_commandRunsOnce(t *testing.T) {
	t.Parallel()
	commands := tier.Pick(t, 20, 20, 600)
	for _, way := range []struct {
		name string
		opts docker.Options
		spec fumehood.Spec
		cmd  fumehood.Cmd
		cut  int // number of commands after which all streams are cut; 0 means never
	}{
		{"guest", docker.Options{NoSockets: true}, fumehood.Spec{Image: busybox}, fumehood.Cmd{}, 0},
		{"guest that is lost", docker.Options{NoSockets: true}, fumehood.Spec{Image: busybox}, fumehood.Cmd{}, commands / 2},
		{"guest of another user", docker.Options{NoSockets: true}, fumehood.Spec{Image: busybox}, fumehood.Cmd{User: "tester"}, 0},
		{"guests that are started again", docker.Options{NoSockets: true}, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{ownMain(t)}}}, fumehood.Cmd{}, 7},
		{"engine", docker.Options{Transport: docker.TransportEngine}, fumehood.Spec{Image: busybox}, fumehood.Cmd{}, 0},
		{"direct", docker.Options{}, fumehood.Spec{Image: busybox}, fumehood.Cmd{ViaEngine: true}, 0},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			p, proxy := faulty(t, way.opts.Sped(6))
			sb := start(t, p, way.spec)
			if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", ": > /tmp/lines; chmod 666 /tmp/lines"}}); err != nil || !res.Success() {
				t.Fatal(res, err)
			}
			proxy.Decide(mix(0.3, 1, faultproxy.Delay, faultproxy.ResetBefore, faultproxy.ResetAfter, faultproxy.HangAfter, faultproxy.Internal, faultproxy.Truncate))
			const workers = 4
			done := make([]bool, commands)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := w; i < commands; i += workers {
						cmd := way.cmd
						cmd.Timeout, cmd.Args = time.Minute, []string{"sh", "-c", fmt.Sprintf("echo line %d >> /tmp/lines; echo done %d", i, i)}
						if way.cut > 0 && i%way.cut == way.cut-1 {
							proxy.Sever()
						}
						res, err := sb.Exec(t.Context(), cmd)
						switch {
						case err != nil && !isOurs(err):
							t.Errorf("command %d: %v", i, err)
						case err != nil:
							t.Logf("command %d: %v", i, err)
						case res.Outcome == fumehood.Lost:
						case !res.Success() || res.Stdout.Text() != fmt.Sprintf("done %d\n", i):
							t.Errorf("command %d: %s, code %d, %q", i, res.Outcome, res.ExitCode, res.Stdout.Text())
						default:
							done[i] = true
						}
					}
				})
			}
			all.Wait()
			proxy.Decide(nil)
			text := linesOf(t, sb)
			results := 0
			for i := range done {
				n := strings.Count(text, fmt.Sprintf("line %d\n", i))
				if n > 1 || done[i] && n != 1 {
					t.Errorf("command %d, with a result: %t, has run %d times", i, done[i], n)
				}
				if done[i] {
					results++
				}
			}
			t.Logf("%d of %d commands have a result", results, commands)
			if results == 0 {
				t.Error("no command has a result: the test proves nothing")
			}
			for range 5 { // its timeout is divided by 6 here, which is short for a busy daemon
				if err := sb.Close(t.Context()); err == nil {
					break
				}
			}
		})
	}
}

// ownMain returns a Compose file of a service that runs its own main process, so that guests are started by execs.
func ownMain(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "compose.yaml")
	text := "services:\n  a:\n    image: " + busybox + "\n    init: true\n    command: [sh, -c, 'echo up; date > /dev/null; while :; do date > /dev/null; sleep 1; done']\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// linesOf reads the file from outside, because the sandbox's guest may be lost.
func linesOf(t *testing.T, sb fumehood.Sandbox) string {
	t.Helper()
	files := engineOf(t).Files(sb.Info().Services[0].Container, nil)
	r, _, err := files.Open(context.WithoutCancel(t.Context()), "/tmp/lines", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

func TestFaults_daemonDiskFull(t *testing.T) {
	t.Parallel()
	p, proxy := faulty(t, docker.Options{})
	warm(t)
	for _, call := range []string{"POST /containers/create", "POST /containers/*/start"} {
		proxy.Decide(func(c string) faultproxy.Fault {
			if c == call {
				return faultproxy.NoSpace
			}
			return faultproxy.None
		})
		before := proxy.Counts()
		_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Name: "faulty-disk"})
		if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "a disk is full") {
			t.Errorf("%s: got %v", call, err)
		}
		if n := proxy.Counts()["full disk of "+call] - before["full disk of "+call]; n != 1 {
			t.Errorf("%s was made %d times", call, n)
		}
		if left := objectsOf(t, "faulty-disk"); len(left) != 0 {
			t.Errorf("left behind: %+v", left)
		}
	}
}

// The daemon sends no more events about containers, and the connection stays open.
func TestFaults_noEvents(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, socketOf(t))
	var hung atomic.Int64
	proxy.Decide(func(call string) faultproxy.Fault {
		if call == "GET /events" && hung.Add(1) == 1 {
			return faultproxy.Mute
		}
		return faultproxy.None
	})
	p := newProvider(t, docker.Options{Host: proxy.Host}.Sped(4))
	for range 2 { // the second start has events
		began := time.Now()
		sb := start(t, p, fumehood.Spec{Image: busybox})
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		if err != nil || !res.Success() {
			t.Errorf("got %+v, %v", res, err)
		}
		t.Logf("after %v", time.Since(began))
	}
	if n := hung.Load(); n != 2 {
		t.Errorf("the events were asked for %d times, want 2", n)
	}
}

// A passing failure while a container is checked before its start is tried again: that the container does not run yet is
// not its reason.
func TestStart_archiveFaults(t *testing.T) {
	t.Parallel()
	warm(t)
	for _, method := range []string{"HEAD", "GET"} {
		for name, fault := range map[string]faultproxy.Fault{"internal": faultproxy.Internal, "reset": faultproxy.ResetAfter} {
			t.Run(method+"_"+name, func(t *testing.T) {
				t.Parallel()
				p, proxy := faulty(t, docker.Options{}.Sped(4))
				var faults atomic.Int64
				proxy.Decide(func(call string) faultproxy.Fault {
					if call == method+" /containers/*/archive" && faults.Add(1) <= 2 { // a start is tried three times
						return fault
					}
					return faultproxy.None
				})
				sb, err := p.Start(t.Context(), fumehood.Spec{Image: busybox})
				if err != nil {
					t.Fatal(err)
				}
				if err := sb.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if faults.Load() < 2 {
					t.Errorf("%d faults", faults.Load())
				}
			})
		}
	}
}
