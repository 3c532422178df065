package app_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// here returns an App whose sandboxes are folders of this machine.
func here(t *testing.T) *app.App {
	t.Helper()
	return &app.App{
		AllowLocal: true, Logger: slog.New(slog.DiscardHandler), Building: func(image, _ string) { t.Errorf("%s is built", image) },
		Open: func(_ context.Context, name string) (fumehood.Provider, error) {
			if name != "local" {
				t.Errorf("the provider is %s", name)
			}
			return local.New(local.Options{StateDir: t.TempDir()})
		},
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, text string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s has %q, %v", path, got, err)
	}
}

func TestApp_Run(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	write(t, in, "some text")
	var started fumehood.Info
	var shown strings.Builder
	opts := app.RunOptions{
		Sandbox: app.Described{Provider: "local"}, Cmd: fumehood.Cmd{Args: []string{"sh", "-c", "tr a-z A-Z <in >made; cat made; exit 3"}},
		In: []app.Transfer{{Host: in, Sandbox: "in"}}, Out: []app.Transfer{{Host: out, Sandbox: "made"}},
		Started: func(sb fumehood.Sandbox, took time.Duration) {
			if started = sb.Info(); took <= 0 {
				t.Errorf("it took %v", took)
			}
		},
	}
	res, err := here(t).Run(t.Context(), opts)
	if err != nil || res.ExitCode != 3 || string(res.Stdout.Bytes) != "SOME TEXT" || started.Provider != "local" {
		t.Errorf("%+v, %v, in %+v", res, err, started)
	}
	wantFile(t, out, "SOME TEXT")

	opts.Cmd.Stdout, opts.Cmd.StdoutCap = &shown, fumehood.KeepNone
	res, err = here(t).Run(t.Context(), opts)
	if err != nil || res.ExitCode != 3 || len(res.Stdout.Bytes) > 0 || shown.String() != "SOME TEXT" {
		t.Errorf("output is %q: %+v, %v", shown.String(), res, err)
	}

	opts.Out[0].Sandbox = "missing"
	if res, err = here(t).Run(t.Context(), opts); err == nil || res == nil || res.ExitCode != 3 {
		t.Errorf("with a failed copy: %+v, %v", res, err)
	}
}

func TestTransfer_CopyOut(t *testing.T) {
	t.Parallel()
	for says, limits := range map[string]workspace.Limits{
		"more than 3 bytes, with the 4 of \"out/a\" (copy less, or raise the limit (--max-size))": {Bytes: 3},
		"more than 1 entries (copy less, or raise the limit (--max-entries))":                     {Entries: 1},
		"": {Bytes: fumehood.NoLimit, Entries: fumehood.NoLimit},
	} {
		host := filepath.Join(t.TempDir(), "out")
		opts := app.RunOptions{
			Sandbox: app.Described{Provider: "local"}, Cmd: fumehood.Cmd{Args: []string{"sh", "-c", "mkdir made; printf text >made/a"}},
			Out: []app.Transfer{{Host: host, Sandbox: "made", Limits: limits}},
		}
		_, err := here(t).Run(t.Context(), opts)
		if says == "" && err == nil {
			wantFile(t, filepath.Join(host, "a"), "text")
		} else if says == "" || !errors.Is(err, fumehood.ErrLimit) || !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%+v: %v", limits, err)
		}
	}
}

// A pipe does not keep a folder from being copied.
func TestTransfer_CopyOut_pipe(t *testing.T) {
	t.Parallel()
	host := filepath.Join(t.TempDir(), "out")
	a := here(t)
	var log strings.Builder
	a.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, err := a.Run(t.Context(), app.RunOptions{
		Sandbox: app.Described{Provider: "local"}, Cmd: fumehood.Cmd{Args: []string{"sh", "-c", "mkdir made; mkfifo made/b; printf text >made/c"}},
		Out: []app.Transfer{{Host: host, Sandbox: "made"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(host, "c"), "text")
	if _, err := os.Lstat(filepath.Join(host, "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pipe: %v", err)
	}
	if !strings.Contains(log.String(), "not everything can be copied") || !strings.Contains(log.String(), "count=1") {
		t.Errorf("logged: %s", log.String())
	}
}

func TestApp_Up(t *testing.T) {
	t.Parallel()
	d := app.Described{Spec: fumehood.Spec{Keep: true}, Provider: "local"}
	started := func(info fumehood.Info, _ func() (provider.KeptSandbox, error)) error {
		t.Errorf("%s was started", info.Name)
		return nil
	}
	if err := here(t).Up(t.Context(), d, started); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestApp_allowLocal(t *testing.T) {
	t.Parallel()
	a := here(t)
	a.AllowLocal = false
	a.Open = func(context.Context, string) (fumehood.Provider, error) {
		t.Error("a provider was opened")
		return nil, errors.New("none")
	}
	d := app.Described{Provider: "local", Environment: &spec.Environment{Type: spec.TypeLocal}}
	if _, err := a.Run(t.Context(), app.RunOptions{Sandbox: d}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("run: %v", err)
	}
	if err := a.Up(t.Context(), d, func(fumehood.Info, func() (provider.KeptSandbox, error)) error { return nil }); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("up: %v", err)
	}
}

func TestApp_RunSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(work, "a"), "1")
	env := filepath.Join(dir, "env.yaml")
	write(t, env, "{type: local, setup: {commands: [echo set up]}, commands: {command: sh}}\n")
	e, err := spec.Load(env)
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	opts := app.SessionOptions{
		Open:    session.Options{Kind: session.Agent, Workspace: work, Environment: e},
		Execute: session.ExecuteOptions{Command: "echo 2 >b; echo done"}, SnapshotOut: filepath.Join(dir, "after.tar.gz"),
		Show: func(ev session.Event) error {
			shown.WriteString(string(ev.Phase) + ": " + string(ev.Data))
			return nil
		},
	}
	a := here(t)
	res, err := a.RunSession(t.Context(), opts)
	if err != nil || res.ExitCode != 0 || res.Snapshot == nil || len(res.Snapshot.Changes) != 1 || res.Snapshot.Changes[0].Path != "b" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := shown.String(); got != "setup: set up\ncommand: done\n" {
		t.Errorf("output is %q", got)
	}
	again := filepath.Join(dir, "again")
	f, err := os.Open(opts.SnapshotOut)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := workspace.Restore(t.Context(), f, again, workspace.RestoreOptions{}); err != nil {
		t.Error(err)
	}
	wantFile(t, filepath.Join(again, "b"), "2\n")

	a.AllowLocal = false
	if _, err := a.RunSession(t.Context(), opts); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("local provider without AllowLocal: %v", err)
	}
}

func TestCreateSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "s.tar")
	write(t, filepath.Join(dir, "a"), "1")
	write(t, file, "the one before")
	opts := workspace.CreateOptions{Compression: workspace.None, Limits: workspace.Limits{Entries: 1}}
	m, err := app.CreateSnapshot(t.Context(), dir, file, opts)
	if err != nil || len(m.Entries) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "b"), "2")
	if _, err := app.CreateSnapshot(t.Context(), dir, file, opts); !errors.Is(err, fumehood.ErrLimit) {
		t.Errorf("of too many files: %v", err)
	}
	wantFile(t, file, string(whole))
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
	if _, err := app.CreateSnapshot(t.Context(), dir, filepath.Join(dir, "s.tar"), opts); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("into its own folder: %v", err)
	}
}
