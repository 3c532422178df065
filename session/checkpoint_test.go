package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

func finish(t *testing.T, s *session.Session) *session.Checkpoint {
	t.Helper()
	c, err := s.FinishCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// told returns changes as one line.
func told(changes []workspace.Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, string(c.Kind)+" "+c.Path)
	}
	return strings.Join(all, ", ")
}

func TestSession_FinishCheckpoint(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		env := p.environment(t, `snapshot: {ignore_globs: ["**/*.pyc"], compression: zst}`)
		env.File = filepath.Join(t.TempDir(), "env.yaml")
		archives := filepath.Join(filepath.Dir(env.File), "made/of/need")
		env.Snapshot.ArchiveSaveDir = archives
		s := p.open(t, env, session.Agent, map[string]string{"a": "1\n", "b": "1\n", "old.pyc": ""})
		r := spawn(t, s, session.SpawnOptions{})
		execute(t, r, sh("echo 2 >> a; rm b; mkdir d; echo n > d/new; echo > d/x.pyc"))
		one := finish(t, s)
		if got := told(one.Changes); got != "changed a, removed b, added d, added d/new" || one.Number != 1 {
			t.Errorf("first checkpoint: number %d, changes %s", one.Number, got)
		}
		if !strings.Contains(one.Changes[0].Hunks, "+2") {
			t.Errorf("missing hunks: %+v", one.Changes[0])
		}
		execute(t, r, sh("chmod 600 a; echo 3 > c"))
		two := finish(t, s)
		if got := told(two.Changes); got != "changed a, added c" || two.Number != 2 {
			t.Errorf("second checkpoint: number %d, changes %s", two.Number, got)
		}
		for _, c := range []*session.Checkpoint{one, two} {
			for _, file := range []string{c.Snapshot, c.Archive} {
				m, err := workspace.FromFile(file, workspace.Limits{}).Manifest(t.Context())
				if err != nil || m.Hash() != c.Manifest.Hash() || !strings.HasSuffix(file, ".tar.zst") {
					t.Errorf("%s: %v", file, err)
				}
			}
			if filepath.Dir(c.Archive) != archives {
				t.Errorf("archive in the wrong folder: %s", c.Archive)
			}
		}
		execute(t, r, sh("rm -r d; echo broken > a; echo > more"))
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if res := execute(t, r, sh("cat a c d/new; ls | tr '\\n' ' '")); res.Stdout.Text() != "1\n2\n3\nn\na c d " {
			t.Errorf("after Reset: %q", outputs(res))
		}
		if three := finish(t, s); len(three.Changes) != 0 {
			t.Errorf("changes after Reset: %s", told(three.Changes))
		}
	})
}

func TestSession_Reset_noCheckpoint(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		for _, kind := range []session.Kind{session.Agent, session.Evaluation} {
			env := p.environment(t, `snapshot: {ignore_globs: ["*.log"]}`)
			s := p.open(t, env, kind, map[string]string{"a": "1", "x.log": "log"}, func(o *session.Options) {
				o.Inputs = []workspace.Input{{Path: "in/rows.csv", Value: [][]string{{"a", "b"}}}}
			})
			r := spawn(t, s, session.SpawnOptions{})
			execute(t, r, sh("echo 2 > a; rm x.log in/rows.csv; mkdir -p z/y; touch z/y/x; chmod 0 z/y; ln -s /etc/passwd l"))
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if res := execute(t, r, sh("cat a x.log in/rows.csv; ls | tr '\\n' ' '")); res.Stdout.Text() != "1loga,b\na in x.log " {
				t.Errorf("%s: %q", kind, outputs(res))
			}
		}
	})
}

func TestFinishCheckpoint_evaluation(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t), session.Evaluation, nil)
		if _, err := s.FinishCheckpoint(t.Context()); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%v", err)
		}
	})
}

func TestOpen_snapshot(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t), session.Agent, map[string]string{"a": "1"})
		execute(t, spawn(t, s, session.SpawnOptions{}), sh("echo 2 > a; ln -s /usr/bin/env link"))
		one := finish(t, s)
		for _, c := range []struct {
			kind         session.Kind
			resume, want string
		}{
			{session.Agent, `["echo resume"]`, "resume\nown\n"},
			{session.Evaluation, `["echo resume"]`, "resume\neval\nown\n"},
			{session.Agent, "[]", "own\n"},
			{session.Evaluation, "[]", "eval\nown\n"},
			{session.Agent, "null", "commands\nown\n"},
			{session.Evaluation, "null", "commands\neval\nown\n"},
		} {
			env := p.environment(t, `setup: {commands: ["echo commands"], eval_commands: ["echo eval"], resume_commands: `+c.resume+`}`)
			again := p.open(t, env, c.kind, nil, func(o *session.Options) { o.Workspace, o.Snapshot = "", one.Snapshot })
			res := execute(t, spawn(t, again, session.SpawnOptions{Setup: "echo own"}), sh("cat a; readlink link"))
			if res.SetupStdout.Text() != c.want || res.Stdout.Text() != "2\n/usr/bin/env\n" {
				t.Errorf("%s, resume_commands: %s: %q, want %q", c.kind, c.resume, outputs(res), c.want)
			}
		}
	})
}

// withAssets returns a change of Options that adds two assets, one of which a later group overrides.
func withAssets(t *testing.T) func(*session.Options) {
	dir := folder(t, map[string]string{"data/one.txt": "one\n", "data/deep/two.txt": "two\n", "other.txt": "other\n"})
	return func(o *session.Options) {
		o.AssetDir = dir
		o.Assets = []map[string]spec.Asset{
			{"data": {Path: "data", SavePath: "given/[data]"}, "file": {Path: "missing"}},
			{"file": {Path: "other.txt"}},
		}
	}
}

func TestStaticAssets(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		for _, kind := range []session.Kind{session.Agent, session.Evaluation} {
			s := p.open(t, p.environment(t), kind, map[string]string{"a": ""}, withAssets(t))
			r := spawn(t, s, session.SpawnOptions{})
			v, err := s.Resolve(map[string]any{"args": []any{"cat {{static:data}}/deep/two.txt {{ static:file }}", 1, nil, []string{"x"}}})
			if err != nil {
				t.Fatal(err)
			}
			args := v.(map[string]any)["args"].([]any)
			if !reflect.DeepEqual(args[1:], []any{1, nil, []string{"x"}}) {
				t.Errorf("%s: values without a placeholder became %v", kind, args)
			}
			if kind == session.Evaluation && p.name == "docker" && args[0] != "cat /static/given/[data]/deep/two.txt /static/other.txt" {
				t.Errorf("resolved %v", args[0])
			}
			if res := execute(t, r, sh(args[0].(string))); res.Stdout.Text() != "two\nother\n" {
				t.Errorf("%s: %q", kind, outputs(res))
			}
			_, err = s.Resolve([]any{"{{static:nope}}"})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "nope") || !strings.Contains(err.Error(), "data, file") {
				t.Errorf("an unknown asset: got %v", err)
			}
			if kind == session.Evaluation {
				if p.name == "docker" {
					if res := execute(t, r, sh("echo x >> /static/other.txt; ls")); !strings.Contains(res.Stderr.Text(), "Read-only") || res.Stdout.Text() != "a\n" {
						t.Errorf("an asset can be written or is in the workspace: %q", outputs(res))
					}
				}
				continue
			}
			execute(t, r, sh("echo x >> other.txt; rm 'given/[data]/one.txt'; echo new > b"))
			c := finish(t, s)
			if told(c.Changes) != "added b" || len(c.Manifest.Entries) != 3 {
				t.Errorf("assets are in the snapshot: %s, %+v", told(c.Changes), c.Manifest.Entries)
			}
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if res := execute(t, r, sh("cat other.txt 'given/[data]/one.txt' b")); res.Stdout.Text() != "other\none\nnew\n" {
				t.Errorf("after Reset: %q", outputs(res))
			}
		}
	})
}

func TestOpen_unsafeAssets(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		outside := t.TempDir()
		for name, prepare := range map[string]func(dir string) error{
			"there already": func(dir string) error { return os.WriteFile(filepath.Join(dir, "other.txt"), nil, 0o600) },
			"out by a link": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "given")) },
		} {
			dir := t.TempDir()
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			opts := session.Options{Provider: p.provider, Environment: p.environment(t), Kind: session.Agent, Workspace: dir, Dir: p.state}
			withAssets(t)(&opts)
			if s, err := session.Open(t.Context(), opts); err == nil {
				t.Errorf("%s: Open succeeded, Close: %v", name, s.Close(t.Context()))
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("%s: files outside the workspace: %v", name, left)
			}
			if left, _ := os.ReadDir(p.state); len(left) > 0 {
				t.Errorf("%s: left behind: %v", name, left)
			}
		}
	})
}

func TestOpen_invalidOptions(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		good := session.Options{Provider: p.provider, Environment: p.environment(t), Kind: session.Agent, Workspace: t.TempDir(), Dir: p.state}
		other := "local"
		if p.name == "local" {
			other = "docker"
		}
		linked := t.TempDir()
		for name, to := range map[string]string{"file": filepath.Join("..", "x"), "folder": t.TempDir()} {
			if err := os.Symlink(to, filepath.Join(linked, name)); err != nil {
				t.Fatal(err)
			}
		}
		for name, change := range map[string]func(*session.Options){
			"no provider":      func(o *session.Options) { o.Provider = nil },
			"no environment":   func(o *session.Options) { o.Environment = nil },
			"no kind":          func(o *session.Options) { o.Kind = "" },
			"no source":        func(o *session.Options) { o.Workspace = "" },
			"two sources":      func(o *session.Options) { o.Snapshot = "x" },
			"no such folder":   func(o *session.Options) { o.Workspace += "/nope" },
			"another type":     func(o *session.Options) { e := *o.Environment; e.Type = other; o.Environment = &e },
			"an asset outside": func(o *session.Options) { o.Assets = []map[string]spec.Asset{{"x": {Path: "../x"}}} },
			"a link to an asset outside": func(o *session.Options) {
				o.Kind, o.AssetDir, o.Assets = session.Evaluation, linked, []map[string]spec.Asset{{"x": {Path: "file"}}}
			},
			"an asset outside by a link": func(o *session.Options) {
				o.Kind, o.AssetDir, o.Assets = session.Evaluation, linked, []map[string]spec.Asset{{"x": {Path: "folder/x"}}}
			},
			"an input outside": func(o *session.Options) { o.Inputs = []workspace.Input{{Path: "../x", Content: []byte{}}} },
			"not a snapshot":   func(o *session.Options) { o.Workspace, o.Snapshot = "", "checkpoint_test.go" },
		} {
			opts := good
			change(&opts)
			s, err := session.Open(t.Context(), opts)
			if fumehood.ClassOf(err) == nil {
				t.Errorf("%s: %v, %v", name, s, err)
			}
			var typed *fumehood.Error
			if !errors.As(err, &typed) || typed.Op != "open session" {
				t.Errorf("%s: not an error of Open: %v", name, err)
			}
		}
		if left, _ := os.ReadDir(p.state); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// A manifest of a large workspace is large, and there may be many.
func TestFinishCheckpoint_memory(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t), session.Agent, map[string]string{"a": "1\n"})
		c := weak.Make(finish(t, s))
		runtime.GC()
		if c.Value() != nil {
			t.Error("the checkpoint is kept in memory")
		}
		if next := finish(t, s); next.Number != 2 {
			t.Errorf("the next checkpoint has number %d", next.Number)
		}
	})
}
