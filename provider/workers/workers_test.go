//go:build linux && (amd64 || arm64)

package workers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/workers"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/tier"
)

// has reports whether a sandbox is on a server.
func (s *server) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.state, name))
	return err == nil
}

// kill kills a server, and waits until its reaper has removed what it had.
func (s *server) kill(t *testing.T) {
	t.Helper()
	reapers := conformance.Reapers(s.cmd.Process.Pid)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	t.Cleanup(func() {
		for _, pid := range reapers {
			conformance.Eventually(t, "the reaper has ended", func() bool { return conformance.HasEnded(pid) })
		}
	})
}

func sh(script string) fumehood.Cmd { return fumehood.Cmd{Args: []string{"sh", "-c", script}} }

// A worker that is killed loses its sandboxes, and no others: commands that ran end as Lost and never run again, calls are an
// ErrUnavailable, and new sandboxes are on the worker that is left.
func TestProvider_workerKilled(t *testing.T) {
	t.Parallel()
	out := t.TempDir()                           // it counts the runs
	if err := os.Chmod(out, 0o777); err != nil { //nolint:gosec // of sandboxes
		t.Fatal(err)
	}
	servers := []*server{serve(t, "--allow-host-path", out), serve(t, "--allow-host-path", out)}
	p := newProvider(t, servers[0].url, servers[1].url)
	spec := fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: out, Container: "/out", Writable: true}}}
	var on [2][]fumehood.Sandbox
	for range 4 {
		sb := start(t, p, spec)
		i := 0
		if servers[1].has(sb.Info().Name) {
			i = 1
		}
		on[i] = append(on[i], sb)
	}
	if len(on[0]) != 2 || len(on[1]) != 2 {
		t.Fatalf("%d and %d sandboxes, want two each", len(on[0]), len(on[1]))
	}
	type end struct {
		name string
		lost bool // it is expected to be
		res  *fumehood.Result
		err  error
	}
	ends := make(chan end, 12)
	begun := 0
	for i, boxes := range on {
		for _, sb := range boxes {
			for kind, run := range map[string]func(fumehood.Cmd) (*fumehood.Result, error){
				"exec": func(cmd fumehood.Cmd) (*fumehood.Result, error) { return sb.Exec(t.Context(), cmd) },
				"input": func(cmd fumehood.Cmd) (*fumehood.Result, error) {
					cmd.Stdin = strings.NewReader("x")
					return sb.Exec(t.Context(), cmd)
				},
				"stream": func(cmd fumehood.Cmd) (res *fumehood.Result, err error) {
					for ev, err := range sb.Stream(t.Context(), cmd) {
						if err != nil {
							return nil, err
						}
						res = ev.Result
					}
					return res, nil
				},
			} {
				name := fmt.Sprintf("%s-%s", sb.Info().Name, kind)
				begun++
				go func() {
					res, err := run(sh("echo ran >> /out/" + name + "; while [ ! -e /out/go ]; do sleep 0.05; done; exit 7"))
					ends <- end{name, i == 0, res, err}
				}()
			}
		}
	}
	ran := func() (n int) {
		all, _ := filepath.Glob(filepath.Join(out, "*-*"))
		for _, file := range all {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n += bytes.Count(text, []byte("ran\n"))
		}
		return n
	}
	conformance.Eventually(t, "all commands have begun", func() bool { return ran() == begun })
	servers[0].kill(t)
	killed := time.Now()
	for range begun / 2 {
		e := <-ends
		if !e.lost || e.err != nil || e.res.Outcome != fumehood.Lost || e.res.Reason == "" {
			t.Errorf("%s: %+v, %v", e.name, e.res, e.err)
		}
	}
	if took := time.Since(killed); took > 30*time.Second {
		t.Errorf("the ends are known after %v", took)
	}
	for _, sb := range on[0] {
		_, err := sb.Exec(t.Context(), sh("true"))
		conformance.WantError(t, err, fumehood.ErrUnavailable)
		_, err = sb.ReadFile(t.Context(), "/etc/passwd", fumehood.ReadOptions{})
		conformance.WantError(t, err, fumehood.ErrUnavailable)
		if err := sb.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for range 2 {
		if sb := start(t, p, spec); !servers[1].has(sb.Info().Name) {
			t.Errorf("%s is not on the worker that is left", sb.Info().Name)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range begun / 2 {
		if e := <-ends; e.err != nil || e.res.ExitCode != 7 || e.lost {
			t.Errorf("%s: %+v, %v", e.name, e.res, e.err)
		}
	}
	if n := ran(); n != begun {
		t.Errorf("%d commands ran %d times", begun, n)
	}
}

// A worker that is killed and started again at the same address gets new sandboxes. The old ones stay lost.
func TestProvider_workerRestarted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := newProvider(t, s.url)
	old := start(t, p, fumehood.Spec{Image: busybox})
	s.kill(t)
	again := &server{url: s.url, dir: s.dir}
	again.start(t, "--socket", filepath.Join(s.dir, "socket"))
	await(t, "unix", filepath.Join(s.dir, "socket"), again)
	// By an old connection the command may have arrived at the server that was killed: then it is lost.
	if res, err := old.Exec(t.Context(), sh("true")); err != nil || res.Outcome != fumehood.Lost {
		conformance.WantError(t, err, fumehood.ErrUnavailable)
	}
	sb := start(t, p, fumehood.Spec{Image: busybox})
	if res, err := sb.Exec(t.Context(), sh("exit 3")); err != nil || res.ExitCode != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := old.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestProvider_Start(t *testing.T) {
	t.Parallel()
	t.Run("no worker answers", func(t *testing.T) {
		t.Parallel()
		dir := shortDir(t)
		p := newProvider(t, "unix:"+dir+"/a", "http://127.0.0.1:1")
		for range 2 { // the second one does not ask
			_, err := p.Start(t.Context(), fumehood.Spec{})
			if conformance.WantError(t, err, fumehood.ErrUnavailable); !strings.Contains(err.Error(), dir+"/a: ") || !strings.Contains(err.Error(), "127.0.0.1:1: ") {
				t.Errorf("a worker is not named: %v", err)
			}
		}
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		a, b := serve(t, "--max-sandboxes", "1"), serve(t, "--max-sandboxes", "2")
		p := newProvider(t, a.url, b.url, "http://127.0.0.1:1")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := p.Start(t.Context(), fumehood.Spec{Image: busybox}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox})
		conformance.WantError(t, err, fumehood.ErrLimit)
	})
	t.Run("image", func(t *testing.T) {
		t.Parallel()
		a, b := serve(t), serveEmpty(t)
		p := newProvider(t, b.url, a.url)
		for range 3 {
			if sb := start(t, p, fumehood.Spec{Image: busybox}); !a.has(sb.Info().Name) {
				t.Error("the worker with the image does not get the sandbox")
			}
		}
	})
	t.Run("draining", func(t *testing.T) {
		t.Parallel()
		a, b := serve(t, "--drain", "1m"), serve(t, "--max-sandboxes", "1")
		p, both := newProvider(t, a.url), newProvider(t, a.url, b.url)
		sb := start(t, p, fumehood.Spec{Image: busybox})
		if err := a.cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "the worker refuses sandboxes", func() bool {
			next, err := p.Start(t.Context(), fumehood.Spec{Image: busybox})
			if err == nil {
				err = next.Close(t.Context())
			}
			return errors.Is(err, fumehood.ErrUnavailable)
		})
		if next := start(t, both, fumehood.Spec{Image: busybox}); !b.has(next.Info().Name) {
			t.Error("it is not on the other worker")
		}
		if res, err := sb.Exec(t.Context(), sh("exit 5")); err != nil || res.ExitCode != 5 {
			t.Errorf("in the sandbox that is there: %+v, %v", res, err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case <-a.ended:
		case <-time.After(20 * time.Second):
			t.Error("the worker does not end, without a sandbox")
		}
	})
}

// Connections that break do not run a command twice, and lose no output.
func TestProvider_brokenConnections(t *testing.T) {
	t.Parallel()
	s := serve(t)
	proxy := faultproxy.Start(t, filepath.Join(s.dir, "socket"))
	p := newProvider(t, strings.Replace(proxy.Host, "unix://", "unix:", 1))
	sb := start(t, p, fumehood.Spec{Image: busybox})
	// Three of five calls of a kind break.
	calls := map[string]int{}
	proxy.Decide(func(call string) faultproxy.Fault {
		if strings.HasPrefix(call, http.MethodPost) && !strings.HasSuffix(call, "/run") && !strings.HasSuffix(call, "/processes") {
			return faultproxy.None // they are sent once
		}
		kind := path.Base(call)
		calls[kind]++
		return []faultproxy.Fault{faultproxy.ResetAfter, faultproxy.ResetBefore, faultproxy.None, faultproxy.Truncate, faultproxy.None}[calls[kind]%5]
	})
	const runs = 20
	for i := range runs {
		res, err := sb.Exec(t.Context(), sh("echo ran >> /tmp/runs; echo out; exit 3"))
		if err != nil || res.ExitCode != 3 || res.Stdout.Text() != "out\n" {
			t.Fatalf("run %d: %+v, %v", i, res, err)
		}
		var stdout bytes.Buffer
		cmd := sh("echo ran >> /tmp/streams; seq 1 20000; exit 4")
		cmd.Stdout = &stdout
		if res, err = sb.Exec(t.Context(), cmd); err != nil || res.ExitCode != 4 || stdout.Len() != int(res.Stdout.Total) || !strings.HasSuffix(stdout.String(), "\n19999\n20000\n") {
			t.Fatalf("stream %d: %+v, %d bytes, %v", i, res.ExitCode, stdout.Len(), err)
		}
	}
	proxy.Decide(nil)
	for _, file := range []string{"runs", "streams"} {
		text, err := sb.ReadFile(t.Context(), "/tmp/"+file, fumehood.ReadOptions{})
		if n := strings.Count(string(text), "ran\n"); err != nil || n != runs {
			t.Errorf("%s: %d commands ran %d times: %v", file, runs, n, err)
		}
	}
	t.Log(proxy.Counts())
	// A write that is not repeated has a class.
	proxy.Decide(func(call string) faultproxy.Fault {
		if strings.HasPrefix(call, http.MethodPut) {
			return faultproxy.ResetBefore
		}
		return faultproxy.None
	})
	err := sb.WriteFile(t.Context(), "/tmp/file", []byte("x"), fumehood.WriteOptions{})
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	proxy.Decide(nil)
}

// A reader that is slow for long holds its command back, and misses nothing.
func TestService_Stream_slow(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All) // it takes a minute
	sb := start(t, newProvider(t, serve(t).url), fumehood.Spec{Image: busybox})
	const size = 30 << 20
	got, first := 0, true
	for ev, err := range sb.Stream(t.Context(), sh(fmt.Sprintf("head -c %d /dev/zero; echo done > /tmp/done", size))) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Skipped != 0 {
			t.Fatalf("%d bytes are skipped", ev.Skipped)
		}
		if got += len(ev.Data); first {
			first = false
			<-time.After(40 * time.Second) // a server gives up other readers after 30 s
			if _, err := sb.Stat(t.Context(), "/tmp/done"); !errors.Is(err, fumehood.ErrNotFound) {
				t.Errorf("the command was not held back: %v", err)
			}
		}
	}
	if got != size {
		t.Errorf("%d bytes, want %d", got, size)
	}
}

func TestService_Dial(t *testing.T) {
	t.Parallel()
	conformance.CheckDial(t, start(t, newProvider(t, serve(t).url), fumehood.Spec{Image: debian}))
}

func TestNew_options(t *testing.T) {
	t.Parallel()
	for _, opts := range []workers.Options{
		{},
		{URLs: []string{"worker"}},
		{URLs: []string{"ftp://worker"}},
		{URLs: []string{"unix:"}},
		{URLs: []string{"http://worker/path"}},
		{URLs: []string{"https://worker"}, CAFile: "/dev/null"},
		{URLs: []string{"https://worker"}, CAFile: "/no/such/file"},
	} {
		_, err := workers.New(opts)
		conformance.WantError(t, err, fumehood.ErrConfig)
	}
}

// A start that the caller gives up leaves nothing.
func TestProvider_Start_canceled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := newProvider(t, s.url)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Start(ctx, fumehood.Spec{Image: busybox})
	conformance.WantError(t, err, fumehood.ErrCanceled)
}
