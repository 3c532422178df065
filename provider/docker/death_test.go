package docker_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/faultproxy"
)

// A service ends in the middle of a sample. Every later call reports how it ended, but the daemon is asked only once.
func TestService_deathReported(t *testing.T) {
	t.Parallel()
	// It runs until a file exists, and then ends as the case says.
	const waits = `echo up; while [ ! -e /tmp/end ]; do date >/dev/null; sleep 0.1; done; echo last words; `
	for name, c := range map[string]struct {
		end  string
		opts docker.Options
		says []string
	}{
		"an exit":                     {"exit 3", docker.Options{}, []string{"exited with code 3", "last words"}},
		"an exit, by the engine":      {"exit 3", docker.Options{Transport: docker.TransportEngine}, []string{"exited with code 3", "last words"}},
		"the out-of-memory killer":    {"exec tail /dev/zero", docker.Options{}, []string{"exited with code 137", "out-of-memory killer struck", "last words"}},
		"an end with a long last log": {"seq 1000; exit 4", docker.Options{}, []string{"exited with code 4", "\n    1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "compose.yaml")
			text := "services:\n  a:\n    image: " + busybox + "\n    mem_limit: 64m\n    command: [sh, -c, '" + waits + c.end + "']\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p, proxy := faulty(t, c.opts)
			sb := start(t, p, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}}})
			var logs, calls atomic.Int64
			proxy.Decide(func(call string) faultproxy.Fault {
				calls.Add(1)
				if call == "GET /containers/*/logs" {
					logs.Add(1)
				}
				return faultproxy.None
			})
			if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"touch", "/tmp/end"}}); err != nil || !res.Success() && res.Outcome != fumehood.Lost {
				t.Fatal(res, err)
			}
			container := sb.Info().Services[0].Container
			conformance.Eventually(t, "the container has ended", func() bool {
				state, err := engineOf(t).Inspect(t.Context(), container)
				return err == nil && !state.Running
			})
			ask := func() {
				_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
				if !errors.Is(err, fumehood.ErrUnavailable) {
					t.Errorf("got %v, want an ErrUnavailable", err)
					return
				}
				for _, want := range c.says {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q missing in %q", want, err)
					}
				}
				if len(err.Error()) > 2000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(ask)
			}
			all.Wait()
			if n := logs.Load(); n != 1 {
				t.Errorf("the log was read %d times", n)
			}
			before := calls.Load()
			ask()
			if n := calls.Load() - before; n != 0 {
				t.Errorf("another call asks the daemon %d times", n)
			}
		})
	}
}

// A busy daemon reports the end of a command first, and much later that of its container. Until then it reports the
// container as running. A command that died with its container has not exited with 137.
func TestExec_containerDiesDaemonLags(t *testing.T) {
	t.Parallel()
	e := engineOf(t)
	late := &lag{answers: map[string][]byte{}}
	socket := dockertest.Between(t, e, late.handle)
	p := newProvider(t, docker.Options{Host: "unix://" + socket, Transport: docker.TransportEngine, NoReaper: true})
	sb := start(t, p, fumehood.Spec{Image: busybox})
	run := func(script string) fumehood.Process {
		p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	dies := run("sleep 1000")
	if res, err := run("exit 137").Wait(t.Context()); err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 137 {
		t.Errorf("got %+v, %v, want an exit with 137", res, err)
	}
	late.begin(t)
	defer late.end()
	if err := e.StopContainer(t.Context(), sb.Info().Services[0].Container); err != nil {
		t.Fatal(err)
	}
	if res, err := dies.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost {
		t.Errorf("got %+v, %v, want it to be lost", res, err)
	}
}

// lag makes an up-to-date daemon delay what it reports about containers.
type lag struct {
	mu      sync.Mutex
	answers map[string][]byte // by path: the last description of a container
	over    chan struct{}     // closed at the end of the lag; nil without a lag
}

// begin holds back all events, and the changes of containers that were described before.
func (l *lag) begin(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) == 0 {
		t.Fatal("no container has been described")
	}
	l.over = make(chan struct{})
}

// end lets everything through.
func (l *lag) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.over)
	l.over = nil
}

// lasts returns a channel that is closed at the end of the lag, or nil without a lag.
func (l *lag) lasts() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

var described = regexp.MustCompile("/containers/[^/]+/json$")

func (l *lag) handle(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		defer func() { _ = recover() }() // a reverse proxy panics when its client has gone
		next.ServeHTTP(heldBack{w, l}, r)
	case described.MatchString(r.URL.Path):
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.over == nil {
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			l.answers[r.URL.Path] = answer.Body.Bytes()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(l.answers[r.URL.Path])
	default:
		next.ServeHTTP(w, r)
	}
}

// heldBack is a response that waits for the end of a lag.
type heldBack struct {
	http.ResponseWriter
	lag *lag
}

func (h heldBack) Write(p []byte) (int, error) {
	if over := h.lag.lasts(); over != nil {
		<-over
	}
	return h.ResponseWriter.Write(p)
}

func (h heldBack) Unwrap() http.ResponseWriter { return h.ResponseWriter }
