package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session"
)

// counting counts the calls that give files to a user.
type counting struct {
	fumehood.Provider
	one, all atomic.Int32
}

func (p *counting) Start(ctx context.Context, s fumehood.Spec) (fumehood.Sandbox, error) {
	sb, err := p.Provider.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return countingSandbox{sb, p}, nil
}

type countingSandbox struct {
	fumehood.Sandbox
	p *counting
}

func (s countingSandbox) Chown(ctx context.Context, path, owner string) error {
	s.p.one.Add(1)
	return s.Sandbox.Chown(ctx, path, owner)
}

func (s countingSandbox) ChownAll(ctx context.Context, path, owner string) error {
	s.p.all.Add(1)
	return s.Sandbox.ChownAll(ctx, path, owner)
}

// The guest gives a workspace to the user of the commands in one request, however many files it has.
func TestSpawn_oneChown(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"mounted": "", "uploaded": "  mount_workspace: false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := inDocker(t)
			c := &counting{Provider: p.provider}
			p.provider = c
			s := p.open(t, p.environment(t, yaml), session.Agent, map[string]string{"a": "1", "d/b": "2", "d/e/f": "3"})
			r := spawn(t, s, session.SpawnOptions{User: "1234:1234"})
			wantCalls := func(after string, all int32) {
				t.Helper()
				if c.one.Load() != 0 || c.all.Load() != all {
					t.Errorf("after %s: %d calls of Chown, %d of ChownAll, want %d", after, c.one.Load(), c.all.Load(), all)
				}
			}
			wantCalls("Spawn", 1)
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCalls("Reset", 2)
			if res := execute(t, r, sh(`find . ! -user 1234; echo x >> d/e/f; echo "$HUID $HGID"`)); res.Stdout.Text() != fmt.Sprintln(os.Getuid(), os.Getgid()) || res.Stderr.Text() != "" {
				t.Errorf("got %q", outputs(res))
			}
		})
	}
}

func TestExecute_hostUser(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t, `  user: "1000:1000"`, "environment: {env: {HGID: spec}}"), session.Evaluation, nil, func(o *session.Options) { o.HUID, o.HGID = "1234", "5678" })
	if res := execute(t, spawn(t, s, session.SpawnOptions{}), sh("echo $HUID $HGID $(id -u)")); res.Stdout.Text() != "1234 spec 1000\n" {
		t.Errorf("got %q", outputs(res))
	}
}

// Open sweeps files of root too, by a container.
func TestSession_Open_sweepsRoot(t *testing.T) {
	t.Parallel()
	runUnprivileged(t, func(t *testing.T, home string) {
		p := inDocker(t)
		p.state = filepath.Join(home, "sessions")
		s := p.open(t, p.environment(t), session.Agent, map[string]string{"a": "1"})
		r := spawn(t, s, session.SpawnOptions{})
		execute(t, r, sh("mkdir -p z/y; echo > z/y/f; chmod 700 z"))
		if err := r.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Dir(s.Workspace())
		abandon(t, folder)
		p.open(t, p.environment(t), session.Agent, nil)
		if _, err := os.Lstat(folder); err == nil || strings.Contains(p.log.String(), "cannot remove") {
			t.Errorf("the folder is left: %v; log: %s", err, p.log)
		}
	})
}

func TestSpawn_copiesEnv(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t, `  user: "0:0"`, "  workdir: /root"), session.Evaluation, nil)
	mine := map[string]string{"A": "before"}
	r := spawn(t, s, session.SpawnOptions{Env: mine})
	mine["A"], mine["HOME"] = "after", "/mine"
	if res := execute(t, r, sh("echo $A $HOME")); res.Stdout.Text() != "before /tmp\n" {
		t.Errorf("got %q", outputs(res))
	}
}
