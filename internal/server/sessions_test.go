package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/workspace"
)

// project makes a workspace in a folder that clients may name.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// open opens a session over a workspace and returns its path.
func (c *served) open(o api.SessionOptions) string {
	c.t.Helper()
	if o.Kind == "" {
		o.Kind = session.Agent
	}
	if o.Environment == "" && o.File == "" {
		o.Environment = "type: local"
	}
	var s api.Session
	c.ok("POST", "/v1/sessions", o, &s, "Idempotency-Key", c.lease+"-"+random(4))
	if s.Kind != o.Kind || s.Workspace == o.Workspace {
		c.t.Errorf("got %+v", s)
	}
	return "/v1/sessions/" + s.ID
}

func TestSession(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"work/a.txt": "one\n", "assets/data.txt": "asset"})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	s := c.open(api.SessionOptions{
		Environment: `{"type": "local", "setup": {"commands": ["echo setup"]}, "commands": {"command": "cat", "entry_file": "{entry_file}.txt"}}`,
		Workspace:   filepath.Join(dir, "work"), AssetDir: filepath.Join(dir, "assets"), Assets: map[string]api.Asset{"data": {Path: "data.txt"}},
		Inputs: []api.Input{{Path: "in/b.txt", Content: []byte("two\n")}}, Limits: &api.WorkspaceLimits{Entries: 10},
	})
	var r api.Runtime
	c.ok("POST", s+"/runtimes", api.SpawnOptions{Env: map[string]string{"X": "spawned"}}, &r, "Idempotency-Key", c.lease+"-spawn")
	var again api.Runtime
	c.ok("POST", s+"/runtimes", api.SpawnOptions{Env: map[string]string{"X": "spawned"}}, &again, "Idempotency-Key", c.lease+"-spawn")
	if again.ID != r.ID || r.ExitCode != nil {
		t.Errorf("got %+v and, again, %+v", r, again)
	}
	one := s + "/runtimes/" + r.ID
	var res api.SessionResult
	for range 2 { // the second is a repeat
		c.ok("POST", one+"/execute", api.Execute{Command: `echo "$X" >>a.txt; cat; exit 3`, Stdin: [][]byte{[]byte("in "), []byte("pieces")}}, &res, "Idempotency-Key", c.lease+"-execute")
	}
	if res.Outcome != fumehood.Exited || res.ExitCode != 3 || string(res.Stdout.Bytes) != "in pieces" || string(res.SetupStdout.Bytes) != "setup\n" || res.Duration <= 0 {
		t.Errorf("got %+v", res)
	}
	c.ok("GET", one, nil, &r)
	if r.ExitCode == nil || *r.ExitCode != 3 {
		t.Errorf("polled %v", r.ExitCode)
	}
	c.ok("POST", one+"/execute", api.Execute{Entry: "a"}, &res)
	if got := string(res.Stdout.Bytes); got != "one\nspawned\n" {
		t.Errorf("the entry printed %q", got)
	}
	var checkpoint api.Checkpoint
	c.ok("POST", s+"/checkpoints", struct{}{}, &checkpoint, "Idempotency-Key", c.lease+"-checkpoint")
	if checkpoint.Number != 1 || len(checkpoint.Changes) != 1 || checkpoint.Changes[0].Path != "a.txt" || checkpoint.Changes[0].Kind != workspace.Changed {
		t.Errorf("got %+v", checkpoint)
	}
	status, snapshot := c.answer("GET", s+"/checkpoints/1/snapshot", nil)
	if want, err := os.ReadFile(checkpoint.Snapshot); err != nil || status != http.StatusOK || !bytes.Equal(snapshot, want) {
		t.Errorf("the snapshot has %d bytes, %d are stored (%v)", len(snapshot), len(want), err)
	}
	c.fails(404, fumehood.CodeUnavailable, "GET", s+"/checkpoints/2/snapshot", nil)
	c.ok("POST", one+"/execute", api.Execute{Command: "rm a.txt"}, &res)
	var found struct{ Files map[string][]byte }
	c.ok("POST", s+"/reset", struct{}{}, nil)
	c.ok("POST", s+"/files", map[string]any{"globs": []string{"**/*.txt"}}, &found)
	if len(found.Files) != 3 || string(found.Files["a.txt"]) != "one\nspawned\n" || string(found.Files["in/b.txt"]) != "two\n" || string(found.Files["data.txt"]) != "asset" {
		t.Errorf("found %q", found.Files)
	}
	var resolved struct{ Value map[string]string }
	c.ok("POST", s+"/resolve", map[string]any{"value": map[string]string{"at": "{{static:data}}"}}, &resolved)
	if !strings.HasSuffix(resolved.Value["at"], "data.txt") || strings.Contains(resolved.Value["at"], "{") {
		t.Errorf("resolved %q", resolved.Value)
	}
	// The runtime is a sandbox too.
	c.ok("POST", "/v1/sandboxes/"+r.ID+"/run", sh("cat a.txt"), nil)
	var list struct{ Sessions []api.Session }
	c.ok("GET", "/v1/sessions", nil, &list)
	if len(list.Sessions) != 1 || "/v1/sessions/"+list.Sessions[0].ID != s {
		t.Errorf("listed %+v", list)
	}
	c.ok("DELETE", one, nil, nil)
	c.ok("DELETE", one+"?kill=true", nil, nil)
	var removed api.Runtime
	if c.ok("GET", one, nil, &removed); removed.ID != r.ID || removed.ExitCode == nil || *removed.ExitCode != 0 {
		t.Errorf("a removed runtime is %+v", removed)
	}
	l, release, err := c.Server.hold(c.lease)
	if err != nil {
		t.Fatal(err)
	}
	if kept := l.sessions[filepath.Base(s)].runtimes; len(kept) > 0 {
		t.Errorf("removed runtimes stay in memory: %v", kept)
	}
	release()
	c.fails(404, api.CodeSandboxNotFound, "POST", one+"/execute", api.Execute{Command: "true"})
	c.fails(404, api.CodeSandboxNotFound, "GET", "/v1/sandboxes/"+r.ID, nil)
	c.ok("DELETE", s, nil, nil)
	c.fails(404, fumehood.CodeUnavailable, "DELETE", s, nil)
	if left := c.left(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestSession_stream(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	s := c.open(api.SessionOptions{Environment: "{type: local, setup: {commands: [echo setup]}}", Workspace: dir})
	var r api.Runtime
	c.ok("POST", s+"/runtimes", api.SpawnOptions{}, &r)
	one := s + "/runtimes/" + r.ID
	read := func(o api.Execute, more func(api.SessionEvent) bool) {
		t.Helper()
		resp := c.send("POST", one+"/stream", o)
		defer resp.Body.Close()
		for d := json.NewDecoder(resp.Body); ; {
			var ev api.SessionEvent
			if err := d.Decode(&ev); err != nil {
				t.Fatal(err)
			}
			if !more(ev) {
				return
			}
		}
	}
	var setup, out strings.Builder
	read(api.Execute{Command: "echo out; exit 4"}, func(ev api.SessionEvent) bool {
		switch {
		case ev.Type == api.EventEnd:
			if ev.Result.ExitCode != 4 {
				t.Errorf("got %+v", ev.Result)
			}
			return false
		case ev.Phase == session.Setup:
			setup.Write(ev.Data)
		case ev.Stream == "stdout":
			out.Write(ev.Data)
		}
		return true
	})
	if setup.String() != "setup\n" || out.String() != "out\n" {
		t.Errorf("got %q and %q", setup.String(), out.String())
	}
	// A command whose reader goes away is killed. Until then, no other runs.
	read(api.Execute{Command: "echo began; sleep 1000"}, func(ev api.SessionEvent) bool {
		c.fails(429, fumehood.CodeLimit, "POST", one+"/execute", api.Execute{Command: "true"})
		c.fails(429, fumehood.CodeLimit, "POST", s+"/reset", struct{}{})
		return ev.Phase != session.Command
	})
	eventually(t, "the command is killed", func() bool {
		status, _ := c.answer("POST", one+"/execute", api.Execute{Command: "true"})
		return status == http.StatusOK
	})
	read(api.Execute{Command: "cat", Stdin: [][]byte{{1}}}, func(ev api.SessionEvent) bool {
		if ev.Type != api.EventError || ev.Error.Code != fumehood.CodeConfig {
			t.Errorf("got %+v", ev)
		}
		return false
	})
}

func TestSession_permit(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"allowed/a": "", "secret/b": "", "allowed/env.yaml": "type: local\n", "allowed/docker.yaml": "{type: docker, docker: {image: a}}"})
	if err := os.Symlink("../secret", filepath.Join(dir, "allowed", "link")); err != nil {
		t.Fatal(err)
	}
	allowed, secret := filepath.Join(dir, "allowed"), filepath.Join(dir, "secret")
	c := serve(t, Options{Permit: Permit{HostPaths: []string{allowed}}})
	for name, o := range map[string]api.SessionOptions{
		"workspace":        {Workspace: secret},
		"workspace link":   {Workspace: filepath.Join(allowed, "link")},
		"workspace dots":   {Workspace: allowed + "/../secret"},
		"snapshot":         {Snapshot: filepath.Join(secret, "b")},
		"assets":           {Workspace: allowed, AssetDir: secret},
		"file":             {Workspace: allowed, File: filepath.Join(secret, "b")},
		"allow_read":       {Workspace: allowed, AllowRead: []string{secret}},
		"allow_unsafe":     {Workspace: allowed, AllowUnsafe: true},
		"archive_save_dir": {Workspace: allowed, Environment: "{type: local, snapshot: {archive_save_dir: " + secret + "}}"},
	} {
		o.Kind = session.Agent
		if o.Environment == "" && o.File == "" {
			o.Environment = "type: local"
		}
		status, data := c.answer("POST", "/v1/sessions", o)
		if status != http.StatusForbidden || !strings.Contains(string(data), `"class":"permission-denied"`) {
			t.Errorf("%s: got %d %s", name, status, data)
		}
	}
	for name, o := range map[string]api.SessionOptions{
		"no environment":  {Workspace: allowed},
		"another type":    {Workspace: allowed, File: filepath.Join(allowed, "docker.yaml")},
		"unknown key":     {Workspace: allowed, Environment: "{type: local, typo: 1}"},
		"no workspace":    {Environment: "type: local"},
		"unknown asset":   {Workspace: allowed, Environment: "type: local", AssetDir: allowed, Assets: map[string]api.Asset{"x": {Path: "missing"}}},
		"asset with dots": {Workspace: allowed, Environment: "type: local", AssetDir: allowed, Assets: map[string]api.Asset{"x": {Path: "../secret"}}},
		"input with dots": {Workspace: allowed, Environment: "type: local", Inputs: []api.Input{{Path: "../x", Content: []byte{1}}}},
	} {
		o.Kind = session.Agent
		c.fails(400, fumehood.CodeConfig, "POST", "/v1/sessions", o)
		_ = name
	}
	c.fails(403, fumehood.CodePermission, "POST", "/v1/evaluations", api.EvaluationOptions{Task: secret, Runs: allowed})
	c.fails(403, fumehood.CodePermission, "POST", "/v1/evaluations", api.EvaluationOptions{Task: allowed, Runs: secret})
	// A task reads what lies beside its file.
	file := filepath.Join(allowed, "task.yaml")
	only := serve(t, Options{Permit: Permit{HostPaths: []string{file, secret}}})
	only.fails(403, fumehood.CodePermission, "POST", "/v1/evaluations", api.EvaluationOptions{Task: file, Runs: secret})
	c.open(api.SessionOptions{Workspace: allowed, File: filepath.Join(allowed, "env.yaml")})
	// A session belongs to its lease.
	s := c.open(api.SessionOptions{Workspace: allowed})
	var other api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &other)
	c.fails(404, fumehood.CodeUnavailable, "POST", s+"/reset", struct{}{}, "Fumehood-Lease", other.ID)
}

// A client lifts no limit of its workspace.
func TestSession_limits(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	options := func(limits api.WorkspaceLimits) api.SessionOptions {
		return api.SessionOptions{Workspace: dir, Environment: "type: local", Kind: session.Agent, Limits: &limits}
	}
	for _, limits := range []api.WorkspaceLimits{{Bytes: -1}, {Stored: -1}, {Entries: -1}, {Bytes: 10<<30 + 1}, {Stored: 1 << 62}, {Entries: 1_000_001}} {
		c.fails(403, fumehood.CodePermission, "POST", "/v1/sessions", options(limits))
	}
	c.open(options(api.WorkspaceLimits{Bytes: 10 << 30, Stored: 1 << 20, Entries: 1_000_000}))
	unsafe := serve(t, Options{Permit: Permit{HostPaths: []string{dir}, Unsafe: true}})
	unsafe.open(options(api.WorkspaceLimits{Bytes: -1, Stored: -1, Entries: -1}))
}

// A runtime mounts its session's workspace and parts of it, and nothing else of the session's folder: the server trusts the
// links and the names there.
func TestSession_mounts(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"sub/a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	p := fumehood.Provider(imaged{fake.New(fake.Options{})}) // it has no mounts
	c.opened.Store(&p)
	c.opts.Local = false
	s := c.open(api.SessionOptions{Workspace: dir, Environment: "{type: docker, docker: {image: a}}"})
	folder := filepath.Join(filepath.Dir(c.state), "sessions", filepath.Base(s))
	for host, want := range map[string]int{
		"sub": 422, ".": 422, "./sub/..": 422, filepath.Join(folder, "work", "sub"): 422, dir: 422,
		"..": 403, "../start.tar": 403, "sub/../..": 403, folder: 403, "../../..": 403,
	} {
		status, text := c.answer("POST", s+"/runtimes", api.SpawnOptions{Mounts: []fumehood.Mount{{Host: host, Container: "/m", Writable: true}}})
		if status != want {
			t.Errorf("%s: got %d %s, want %d", host, status, text, want)
		}
	}
}

// The default limit of an environment becomes the server's, a higher one is refused.
func TestSession_memory(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}, Limits: Limits{Memory: 1 << 30}})
	p := &leasedProvider{s: c.Server, l: &lease{s: c.Server}}
	for memory, want := range map[int64]int64{0: 1 << 30, 1 << 20: 1 << 20, fumehood.DefaultMemory: 1 << 30} {
		spec := fumehood.Spec{Limits: fumehood.Limits{Memory: memory}}
		if err := p.check(&spec); err != nil || spec.Limits.Memory != want {
			t.Errorf("%d bytes became %d, want %d: %v", memory, spec.Limits.Memory, want, err)
		}
	}
	s := c.open(api.SessionOptions{Workspace: dir, Environment: "{type: local, limits: {memory: 3GiB}}"})
	c.fails(429, fumehood.CodeLimit, "POST", s+"/runtimes", api.SpawnOptions{})
}

func TestSession_limit(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}, Limits: Limits{Sandboxes: 1}})
	s := c.open(api.SessionOptions{Workspace: dir})
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/sessions", api.SessionOptions{Environment: "type: local", Kind: session.Agent, Workspace: dir})
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/evaluations", api.EvaluationOptions{Task: dir, Runs: dir})
	var other api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &other)
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/sessions", api.SessionOptions{Environment: "type: local", Kind: session.Agent, Workspace: dir}, "Fumehood-Lease", other.ID)
	c.ok("DELETE", s, nil, nil)
	s = c.open(api.SessionOptions{Workspace: dir})
	c.ok("POST", s+"/runtimes", api.SpawnOptions{}, nil)
	c.fails(429, fumehood.CodeLimit, "POST", s+"/runtimes", api.SpawnOptions{})
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/sandboxes", fumehood.Spec{})
}

// Sessions that are closed while their lease ends are closed once, and without a race.
func TestSession_leaseClosing(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	var all sync.WaitGroup
	var open []*openSession
	c.mu.Lock()
	l := c.leases[c.lease]
	c.mu.Unlock()
	for range 8 {
		o, err := l.s.openSession(t.Context(), l, &api.SessionOptions{Environment: "type: local", Workspace: dir, Kind: session.Agent})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, o)
	}
	for _, o := range open {
		all.Go(func() {
			if err := o.end(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil)
	all.Wait()
	if left := c.left(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A session ends with its lease, also in the middle of a command.
func TestSession_lease(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"a": ""})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	s := c.open(api.SessionOptions{Workspace: dir})
	var r api.Runtime
	c.ok("POST", s+"/runtimes", api.SpawnOptions{}, &r)
	resp := c.send("POST", s+"/runtimes/"+r.ID+"/stream", api.Execute{Command: "echo began; sleep 1000"})
	defer resp.Body.Close()
	var ev api.SessionEvent
	if err := json.NewDecoder(resp.Body).Decode(&ev); err != nil || ev.Type != api.EventOutput {
		t.Fatalf("got %+v, %v", ev, err)
	}
	c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil)
	if left := c.left(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	c.fails(410, api.CodeStale, "GET", "/v1/sessions", nil)
}
