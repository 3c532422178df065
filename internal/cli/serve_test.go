//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// serving is a process of `fumehood serve --stdio`.
type serving struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	http  *http.Client
	lease string
	path  string
}

// startServe starts the program and opens a lease, which lives as long as requests come.
func startServe(t *testing.T, args ...string) *serving {
	t.Helper()
	needDocker(t)
	cmd, _ := program(t)
	return startServeIn(t, cmd.Env, args...)
}

// startServeIn is startServe in an environment.
func startServeIn(t *testing.T, env []string, args ...string) *serving {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "fumehood", append([]string{"serve", "--stdio"}, args...)...)
	cmd.Env = env
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // a test may have ended it
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("it printed: %s", &log)
		}
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	var hello api.Hello
	if err := json.Unmarshal(line, &hello); err != nil || hello.API != api.Number || hello.Instance == "" {
		t.Fatalf("%v: %s", err, line)
	}
	s := &serving{t: t, cmd: cmd, stdin: stdin, path: strings.TrimPrefix(hello.Address, "unix:")}
	if info, err := os.Stat(filepath.Dir(s.path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the socket: %v, %v", info, err)
	}
	s.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.path)
	}}}
	t.Cleanup(s.http.CloseIdleConnections)
	var lease api.Lease
	s.ok("POST", "/v1/leases", struct{}{}, &lease)
	s.lease = lease.ID
	return s
}

// do sends a request and decodes its answer.
func (s *serving) do(method, path string, body, to any) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://localhost"+path, bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = http.Header{"Fumehood-Lease": {s.lease}, "Content-Type": {"application/json"}}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && to != nil && resp.StatusCode < 300 {
		err = json.Unmarshal(answer, to)
	}
	if err != nil {
		s.t.Fatalf("%v: %s", err, answer)
	}
	return resp.StatusCode, string(answer)
}

func (s *serving) ok(method, path string, body, to any) {
	s.t.Helper()
	if status, answer := s.do(method, path, body, to); status < 200 || status >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
}

// sleeps starts a sandbox with a command that runs for long, and returns the sandbox's name.
func (s *serving) sleeps() string {
	s.t.Helper()
	var images struct{ Images map[string]string }
	s.ok("POST", "/v1/images", fumehood.Spec{Image: "fumehood-test/busybox"}, &images)
	if len(images.Images) != 1 {
		s.t.Errorf("got %+v", images)
	}
	var box api.Sandbox
	s.ok("POST", "/v1/sandboxes", fumehood.Spec{Image: "fumehood-test/busybox"}, &box)
	var res fumehood.Result
	s.ok("POST", "/v1/sandboxes/"+box.ID+"/run", api.Cmd{Args: []string{"echo", "it works"}}, &res)
	if res.Stdout.Text() != "it works\n" {
		s.t.Errorf("got %+v", res)
	}
	s.ok("POST", "/v1/sandboxes/"+box.ID+"/processes", api.Cmd{Args: []string{"sleep", "600"}}, nil)
	return box.ID
}

// With --stdio, the server ends with all that it started when its standard input closes.
func TestServe_stdio(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	name := s.sleeps()
	e := needDocker(t)
	if _, err := e.Inspect(t.Context(), name+"-default-1"); err != nil {
		t.Fatal(err)
	}
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := e.Inspect(t.Context(), name+"-default-1"); err == nil {
		t.Error("the container is still there")
	}
	if _, err := os.Stat(filepath.Dir(s.path)); err == nil {
		t.Error("the folder of the socket is still there")
	}
}

// The sandboxes of a server that is killed are removed by the reaper.
func TestServe_killed(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	name := s.sleeps()
	e := needDocker(t)
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	eventually(t, "the container is removed", func() bool {
		_, err := e.Inspect(t.Context(), name+"-default-1")
		return err != nil
	})
	if err := os.RemoveAll(filepath.Dir(s.path)); err != nil { // a killed server leaves its socket to the next
		t.Error(err)
	}
}

// Kept sandboxes are found again by the next server.
func TestServe_kept(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	spec := map[string]any{"image": "fumehood-test/busybox", "keep": true, "ttl_ms": 600_000}
	if status, answer := s.do("POST", "/v1/sandboxes", spec, nil); status != http.StatusForbidden || !strings.Contains(answer, "--allow-kept") {
		t.Errorf("got %d %s", status, answer)
	}
	env := s.cmd.Env
	first := startServeIn(t, env, "--allow-kept")
	var box api.Sandbox
	first.ok("POST", "/v1/sandboxes", spec, &box)
	path := "/v1/sandboxes/" + box.ID
	first.ok("POST", path+"/run", api.Cmd{Args: []string{"touch", "/here"}}, nil)
	if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait()
	second := startServeIn(t, env, "--allow-kept")
	var res fumehood.Result
	second.ok("POST", path+"/run", api.Cmd{Args: []string{"ls", "/here"}}, &res)
	if res.ExitCode != 0 || !box.Kept {
		t.Errorf("got %+v of %+v", res, box)
	}
	var all struct{ Sandboxes []api.Sandbox }
	second.ok("GET", "/v1/sandboxes", nil, &all)
	if !slices.ContainsFunc(all.Sandboxes, func(b api.Sandbox) bool { return b.ID == box.ID && b.Kept }) { // other tests keep some too
		t.Errorf("got %+v", all)
	}
	second.ok("DELETE", path, nil, nil)
	if status, _ := second.do("GET", path, nil, nil); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}
	for _, s := range []*serving{first, second} {
		if err := os.RemoveAll(filepath.Dir(s.path)); err != nil {
			t.Error(err)
		}
	}
}
