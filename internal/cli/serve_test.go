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
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/docker/engine"
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
	var prepared api.Progress // the last line is the only one, as nothing is pulled
	s.ok("POST", "/v1/images", fumehood.Spec{Image: "fumehood-test/busybox"}, &prepared)
	if prepared.Type != api.EventEnd || len(prepared.Images) != 1 {
		s.t.Errorf("got %+v", prepared)
	}
	var box api.Sandbox
	s.ok("POST", "/v1/sandboxes", fumehood.Spec{Image: "fumehood-test/busybox"}, &box)
	var res fumehood.Result
	s.ok("POST", "/v1/sandboxes/"+box.ID+"/run", api.Cmd{Args: []api.Text{"echo", "it works"}}, &res)
	if res.Stdout.Text() != "it works\n" {
		s.t.Errorf("got %+v", res)
	}
	s.ok("POST", "/v1/sandboxes/"+box.ID+"/processes", api.Cmd{Args: []api.Text{"sleep", "600"}}, nil)
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

// The steps of a build are lines.
func TestServe_progress(t *testing.T) {
	t.Parallel()
	needDocker(t)
	dir := t.TempDir()
	dockerfile := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(dockerfile, []byte("FROM fumehood-test/busybox\nRUN echo "+filepath.Base(dir)+" >/made\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "--allow-egress", "--allow-host-path", dir)
	_, answer := s.do("POST", "/v1/images", fumehood.Spec{Compose: &fumehood.Compose{Dockerfile: dockerfile}}, nil)
	steps, images := 0, map[string]string(nil)
	for d := json.NewDecoder(strings.NewReader(answer)); d.More(); {
		var line api.Progress
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Type == api.EventProgress && line.Build && line.Image != "" {
			steps++
		}
		images = line.Images
	}
	if steps < 2 || len(images) != 1 {
		t.Errorf("%d steps: %s", steps, answer)
	}
	for _, id := range images {
		if err := needDocker(t).Remove(t.Context(), engine.Object{Kind: engine.ImageKind, ID: id, Name: id}); err != nil {
			t.Error(err)
		}
	}
}

// Sessions and evaluations run in containers, and leave nothing when the server ends.
func TestServe_session(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"work/main.sh": "cat input; id -u",
		"env.yaml":     "{type: docker, docker: {image: fumehood-test/busybox, network: bridge}, commands: {command: sh, entry_file: '{entry_file}'}}",
		"task.yaml":    "{name: served, environment: {image: fumehood-test/busybox}, samples: [{id: a, command: echo 42, expect: {stdout: {exact: \"42\\n\"}}}]}",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startServe(t, "--allow-host-path", dir, "--allow-egress")
	var session api.Session
	s.ok("POST", "/v1/sessions", map[string]any{
		"file": filepath.Join(dir, "env.yaml"), "kind": "evaluation", "workspace": filepath.Join(dir, "work"), "huid": "65534", "hgid": "65534",
		"inputs": []api.Input{{Path: "input", Content: []byte("given ")}},
	}, &session)
	var r api.Runtime
	s.ok("POST", "/v1/sessions/"+session.ID+"/runtimes", api.SpawnOptions{Ports: []fumehood.Port{{Container: 8080, Protocol: fumehood.ProtocolTCP}}}, &r)
	var c fumehood.Connection
	s.ok("GET", "/v1/sandboxes/"+r.ID+"/connection", nil, &c)
	if len(c.Ports) != 1 || c.Ports[0].Container != 8080 || c.Ports[0].Host == 0 {
		t.Errorf("ports %+v", c.Ports)
	}
	for _, p := range []fumehood.Port{{Container: 0}, {Container: 1, Protocol: fumehood.ProtocolUDP}, {Container: 1, Address: "0.0.0.0"}} {
		if status, answer := s.do("POST", "/v1/sessions/"+session.ID+"/runtimes", api.SpawnOptions{Ports: []fumehood.Port{p}}, nil); status != http.StatusBadRequest {
			t.Errorf("port %+v: %d %s", p, status, answer)
		}
	}
	var res api.SessionResult
	s.ok("POST", "/v1/sessions/"+session.ID+"/runtimes/"+r.ID+"/execute", api.Execute{Entry: "main.sh"}, &res)
	if string(res.Stdout.Bytes) != "given 65534\n" || res.ExitCode != 0 {
		t.Errorf("got %+v", res)
	}
	for _, mount := range []string{"/etc", filepath.Dir(session.Workspace)} {
		status, answer := s.do("POST", "/v1/sessions/"+session.ID+"/runtimes", api.SpawnOptions{Mounts: []fumehood.Mount{{Host: mount, Container: "/host"}}}, nil)
		if status != http.StatusForbidden {
			t.Errorf("mount of %s: %d %s", mount, status, answer)
		}
	}
	var e api.Evaluation
	s.ok("POST", "/v1/evaluations", api.EvaluationOptions{Task: dir, Runs: filepath.Join(dir, "runs")}, &e)
	_, events := s.do("GET", "/v1/evaluations/"+e.ID+"/events", nil, nil)
	if !strings.Contains(events, `"event":"end"`) || !strings.Contains(events, `"passed":1`) {
		t.Errorf("events %s", events)
	}
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := needDocker(t).Inspect(t.Context(), r.ID+"-default-1"); err == nil {
		t.Error("the container is still there")
	}
	if _, err := os.Stat(session.Workspace); err == nil {
		t.Error("the workspace is still there")
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
	first.ok("POST", path+"/run", api.Cmd{Args: []api.Text{"touch", "/here"}}, nil)
	if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait()
	second := startServeIn(t, env, "--allow-kept")
	var own api.Sandbox
	second.ok("POST", "/v1/sandboxes", spec, &own)
	second.ok("DELETE", "/v1/sandboxes/"+own.ID, nil, nil)
	if _, err := needDocker(t).Inspect(t.Context(), own.ID+"-default-1"); err == nil {
		t.Error("a kept sandbox that this server started was not removed")
	}
	var res fumehood.Result
	second.ok("POST", path+"/run", api.Cmd{Args: []api.Text{"ls", "/here"}}, &res)
	if res.ExitCode != 0 || !box.Kept {
		t.Errorf("got %+v of %+v", res, box)
	}
	var renewed api.Sandbox
	second.ok("POST", path+"/renew", map[string]float64{"ttl_ms": 3_600_000}, &renewed)
	if more := renewed.Expires.Sub(box.Expires); more < 49*time.Minute || more > 51*time.Minute {
		t.Errorf("renewed from %v to %v", box.Expires, renewed.Expires)
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
