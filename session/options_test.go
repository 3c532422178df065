//go:build unix

package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
)

func TestSession_Open_invalidSpec(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	for says, change := range map[string]func(*spec.Environment){
		"commands.entry_file":         func(e *spec.Environment) { e.Commands.EntryFile = "{entry}.py" },
		"snapshot.keep_globs[0]":      func(e *spec.Environment) { e.Snapshot.KeepGlobs = []string{"[a"} },
		"snapshot.ignore_globs[0]":    func(e *spec.Environment) { e.Snapshot.IgnoreGlobs = []string{"/a"} },
		"snapshot.compression: wante": func(e *spec.Environment) { e.Snapshot.Compression = "rar" },
	} {
		env := p.environment(t)
		change(env)
		opts := session.Options{Provider: p.provider, Environment: env, Kind: session.Agent, Workspace: t.TempDir(), Dir: p.state}
		if s, err := session.Open(t.Context(), opts); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, %v, want %q", s, err, says)
		}
	}
}

func TestSession_Open_copies(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	env := p.environment(t, "environment: {env: {A: before}}", `setup: {commands: ["echo before"]}`)
	s := p.open(t, env, session.Agent, nil)
	mine := map[string]string{"HOME": "/before"}
	env.Environment.Env["A"], env.Setup.Commands[0] = "after", "echo after"
	r := spawn(t, s, session.SpawnOptions{Env: mine})
	mine["HOME"] = "/after"
	if got := outputs(execute(t, r, sh("echo $A $HOME"))); got != "before\n||before /before\n||exited" {
		t.Errorf("%q", got)
	}
}

// stuck is a provider whose sandboxes fail to close once.
type stuck struct{ fumehood.Provider }

func (p stuck) Start(ctx context.Context, s fumehood.Spec) (fumehood.Sandbox, error) {
	sb, err := p.Provider.Start(ctx, s)
	return &stuckSandbox{Sandbox: sb}, err
}

var errStuck = errors.New("stuck")

type stuckSandbox struct {
	fumehood.Sandbox
	tried bool
}

func (s *stuckSandbox) Close(ctx context.Context) error {
	if !s.tried {
		s.tried = true
		return errStuck
	}
	return s.Sandbox.Close(ctx)
}

func TestSession_Exec_bothFail(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	p.provider = stuck{p.provider}
	s := p.open(t, p.environment(t), session.Agent, nil)
	_, err := s.Exec(t.Context(), session.SpawnOptions{}, session.ExecuteOptions{Command: "true", Timeout: -1})
	if !errors.Is(err, errStuck) || !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "is negative") {
		t.Errorf("got %v", err)
	}
	if _, err = s.Exec(t.Context(), session.SpawnOptions{}, sh("true")); !errors.Is(err, errStuck) {
		t.Errorf("got %v", err)
	}
}

func TestSession_ReadFiles_paths(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	s := p.open(t, p.environment(t), session.Agent, map[string]string{"a.txt": "", "dir/b.txt": "", "dir/sub/c.txt": ""})
	for glob, want := range map[string]string{
		"./a.txt": "a.txt", ".//./a.txt": "a.txt", "dir/": "dir/b.txt dir/sub/c.txt", "./dir/sub//": "dir/sub/c.txt", "./dir/*.txt": "dir/b.txt",
		".": "a.txt dir/b.txt dir/sub/c.txt", "./": "a.txt dir/b.txt dir/sub/c.txt",
	} {
		files, err := s.ReadFiles(t.Context(), glob)
		var names []string
		for name := range files {
			names = append(names, name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", glob, got, err, want)
		}
	}
	for _, bad := range []string{"", "/", "/a.txt", "../a", "./../a", "dir/../a.txt", "[a"} {
		if files, err := s.ReadFiles(t.Context(), bad); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%q: got %v, %v", bad, files, err)
		}
	}
}

func TestSession_Resolve_keys(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	dir := folder(t, map[string]string{"f": "", "g": ""})
	s := p.open(t, p.environment(t), session.Evaluation, nil, func(o *session.Options) {
		o.AssetDir, o.Assets = dir, []map[string]spec.Asset{{"f": {Path: "f"}, "g": {Path: "g"}}}
	})
	v, err := s.Resolve(map[string]any{"{{static:f}}": map[string]string{"a {{static:g}}": "{{static:f}}"}, "same": nil})
	m, _ := v.(map[string]any)
	inner, _ := m[dir+"/f"].(map[string]string)
	if _, same := m["same"]; err != nil || len(m) != 2 || !same || inner["a "+dir+"/g"] != dir+"/f" {
		t.Errorf("got %v, %v", v, err)
	}
	if v, err := s.Resolve(map[string]string{"{{static:nope}}": ""}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), `unknown static asset "nope"`) {
		t.Errorf("got %v, %v", v, err)
	}
	if v, err := s.Resolve(map[string]string{"{{static:f}}": "", "{{ static:f }}": ""}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "another key") {
		t.Errorf("got %v, %v", v, err)
	}
}

func TestSession_FinishCheckpoint_specFormats(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	s := p.open(t, p.environment(t, "snapshot: {keep_globs: [], compression: bz2}"), session.Agent, map[string]string{"a": "", "d/b": ""})
	c, err := s.FinishCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Manifest.Entries) != 0 || !strings.HasSuffix(c.Snapshot, ".tar.gz") || !strings.Contains(p.log.String(), "written as gz") {
		t.Errorf("got %s with %+v, log %s", c.Snapshot, c.Manifest.Entries, p.log)
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files, err := s.ReadFiles(t.Context(), "**"); err != nil || len(files) != 0 {
		t.Errorf("after Reset: got %q, %v", files, err)
	}
	from := func(o *session.Options) { o.Workspace, o.Snapshot = "", "workspace/testdata/hello.tar.bz2" }
	evaluation := p.open(t, p.environment(t, "snapshot: {compression: bz2}"), session.Evaluation, nil, from)
	if files, err := evaluation.ReadFiles(t.Context(), "**"); err != nil || len(files) == 0 {
		t.Errorf("from bz2: got %q, %v", files, err)
	}
}
