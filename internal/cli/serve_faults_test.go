//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// wire is a socket in front of the Engine's that can be cut.
type wire struct {
	t      *testing.T
	path   string
	mu     sync.Mutex
	cut    bool
	conns  []net.Conn
	copies sync.WaitGroup
}

func newWire(t *testing.T) *wire {
	t.Helper()
	host := needDocker(t).Endpoint()
	engine, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		t.Skipf("the Engine at %s has no unix socket", host)
	}
	w := &wire{t: t, path: filepath.Join(t.TempDir(), "s")}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	w.copies.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			if w.cut {
				conn.Close()
			} else if to, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "unix", engine); err != nil {
				t.Error(err)
				conn.Close()
			} else {
				w.conns = append(w.conns, conn, to)
				for _, pair := range [][2]net.Conn{{conn, to}, {to, conn}} {
					w.copies.Go(func() {
						_, _ = io.Copy(pair[0], pair[1]) // cut, or at its end
						_ = pair[0].(*net.UnixConn).CloseWrite()
					})
				}
			}
			w.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.set(true)
		w.copies.Wait()
	})
	return w
}

// set cuts all connections and refuses new ones, or accepts them again.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for _, c := range w.conns {
			c.Close()
		}
		w.conns = nil
	}
}

// While the daemon is away, requests fail with errors of the infrastructure, and commands are lost or run on; the server
// itself goes on, and so do new sandboxes when the daemon is back.
func TestServe_daemonLost(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	cmd, _ := program(t)
	s := startServeIn(t, append(cmd.Env, "DOCKER_HOST=unix://"+w.path))
	name := s.sleeps()
	path := "/v1/sandboxes/" + name
	w.set(true)
	status, answer := s.do("POST", path+"/run", api.Cmd{Args: []api.Text{"true"}}, nil)
	var res fumehood.Result
	switch {
	case status == http.StatusOK && json.Unmarshal([]byte(answer), &res) == nil && (res.Outcome == fumehood.Lost || res.Success()):
	case status >= 400 && status != http.StatusInternalServerError && strings.Contains(answer, `"class":"`):
	default:
		t.Errorf("a command: %d %s", status, answer)
	}
	if status, answer := s.do("POST", "/v1/sandboxes", fumehood.Spec{Image: "fumehood-test/busybox"}, nil); status != http.StatusBadGateway && status != http.StatusNotFound {
		t.Errorf("a start: %d %s", status, answer)
	}
	s.ok("GET", "/v1/version", nil, nil)
	w.set(false)
	eventually(t, "sandboxes start again", func() bool {
		var box api.Sandbox
		status, _ := s.do("POST", "/v1/sandboxes", fumehood.Spec{Image: "fumehood-test/busybox"}, &box)
		if status == http.StatusOK {
			s.ok("POST", "/v1/sandboxes/"+box.ID+"/run", api.Cmd{Args: []api.Text{"true"}}, nil)
		}
		return status == http.StatusOK
	})
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := needDocker(t).Inspect(t.Context(), name+"-default-1"); err == nil {
		t.Error("the container is still there")
	}
}
