//go:build unix

package session_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
)

func TestSession_Open(t *testing.T) {
	for dir, says := range map[string]string{"/etc/x": "is not safe", filepath.Join(t.TempDir(), "elsewhere"): "below the spec's folder"} {
		p := inLocal(t)
		env := p.environment(t, "snapshot: {archive_save_dir: "+dir+"}")
		opts := session.Options{Provider: p.provider, Environment: env, Kind: session.Agent, Workspace: t.TempDir(), Dir: p.state}
		if _, err := session.Open(t.Context(), opts); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("archives in %s: got %v", dir, err)
		}
		env.AllowUnsafe = true
		if s, err := session.Open(t.Context(), opts); err != nil {
			t.Errorf("archives in %s, allowed: got %v", dir, err)
		} else if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestExecute_terminal(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	for setup, want := range map[string]string{"[]": "||tty\r\nerr\r\n||exited", `["echo setup"]`: "setup\r\n||tty\r\nerr\r\n||exited"} {
		s := p.open(t, p.environment(t, "local: {requires_tty: true}", "setup: {commands: "+setup+"}"), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{})
		if res := execute(t, r, sh("test -t 1 && echo tty; echo err >&2")); outputs(res) != want {
			t.Errorf("%s: %q", setup, outputs(res))
		}
	}
}

func TestExecute_shellOfSpec(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	shell := filepath.Join(t.TempDir(), "shell")
	if err := files.WriteProgram(shell, []byte("#!/bin/sh\necho mine\nexec sh \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := p.open(t, p.environment(t, "local: {shell: "+shell+"}", `setup: {commands: ["echo setup"]}`), session.Agent, nil)
	if res := execute(t, spawn(t, s, session.SpawnOptions{}), sh("echo command")); outputs(res) != "mine\nsetup\n||command\n||exited" {
		t.Errorf("%q", outputs(res))
	}
}

func TestExecute_scriptTooLong(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	r := spawn(t, p.open(t, p.environment(t), session.Agent, nil), session.SpawnOptions{})
	if _, err := r.Execute(t.Context(), sh(strings.Repeat("#", 128<<10))); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "131071") {
		t.Errorf("%v", err)
	}
	if res := execute(t, r, sh("echo on #"+strings.Repeat("#", 128<<10-11))); res.Stdout.Text() != "on\n" {
		t.Errorf("the longest script: %q", outputs(res))
	}
}

func TestSpawn_localUnsupported(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	s := p.open(t, p.environment(t), session.Agent, nil)
	for _, opts := range []session.SpawnOptions{{Image: "x"}, {User: "x"}, {Ports: spec.Ports{{Container: 80}}}, {Mounts: spec.Mounts{{Host: "/", Container: "/x"}}}} {
		if _, err := s.Spawn(t.Context(), opts); !errors.Is(err, fumehood.ErrUnsupported) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

func TestExecute_outputCaps(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	s := p.open(t, p.environment(t, `setup: {commands: ["printf 12345"]}`), session.Agent, nil)
	res := execute(t, spawn(t, s, session.SpawnOptions{}), session.ExecuteOptions{Command: "printf abcde; printf vwxyz >&2", StdoutCap: 3, StderrCap: fumehood.KeepNone})
	if outputs(res) != "345||cde||exited" || res.SetupStdout.Total != 5 || res.Stderr.Total != 5 {
		t.Errorf("%q, %+v", outputs(res), res)
	}
}
