package session_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/tier"
)

// canary is a folder of this machine that no sandbox may read or change.
type canary struct {
	dir    string
	before map[string]string
}

func newCanary(t *testing.T) canary {
	t.Helper()
	c := canary{dir: folder(t, map[string]string{"secret": "canary", "sub/dir/secret": "canary"})}
	c.before = c.look(t)
	return c
}

// look returns the modes of all files in the folder.
func (c canary) look(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[path] = info.Mode().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (c canary) check(t *testing.T) {
	t.Helper()
	after := c.look(t)
	for path, mode := range after {
		if c.before[path] != mode {
			t.Errorf("%s was %q and is %s", path, c.before[path], mode)
		}
	}
	for path := range c.before {
		if after[path] == "" {
			t.Errorf("%s is gone", path)
		}
	}
}

// swap leaves a process running in a runtime. It repeatedly replaces a folder of the workspace by a link to
// target, and puts the folder back.
func swap(t *testing.T, r *session.Runtime, name, target string) {
	t.Helper()
	leave(t, r, `import os, time
def do(what, *args):
    try:
        what(*args)
    except OSError:
        pass
while True:
    do(os.mkdir, "`+name+`")
    time.sleep(0.05) # long enough for a check
    do(os.rename, "`+name+`", "real")
    do(os.symlink, "`+target+`", "`+name+`")
    time.sleep(0.1) # and for a mount
    do(os.remove, "`+name+`")
    do(os.rename, "real", "`+name+`")
`)
}

// leave starts a program that keeps running after the command that starts it, and waits until it has begun.
func leave(t *testing.T, r *session.Runtime, python string) {
	t.Helper()
	script := "open('/tmp/begun', 'w').close()\n" + python
	res := execute(t, r, sh("cat > /tmp/daemon.py <<'END'\n"+script+"END\nsetsid python3 /tmp/daemon.py >/dev/null 2>&1 </dev/null &\nuntil test -e /tmp/begun; do sleep 0.01; done"))
	if res.ExitCode != 0 {
		t.Fatal(outputs(res))
	}
}

func TestSpawn_mountRace(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	host := newCanary(t)
	env := p.environment(t, "  extra_mounts: {fixtures: {bind: /fixtures, mode: rw}}")
	s := p.open(t, env, session.Agent, map[string]string{"fixtures/f": "fixture"})
	swap(t, spawn(t, s, session.SpawnOptions{}), "fixtures", host.dir)
	for spawned := 0; spawned < tier.Pick(t, 5, 10, 200); {
		r, err := s.Spawn(t.Context(), session.SpawnOptions{})
		if errors.Is(err, fumehood.ErrConfig) {
			continue // it is a link right now, or is missing
		}
		if err != nil {
			t.Fatal(err)
		}
		spawned++
		res := execute(t, r, sh("cat /fixtures/secret; echo x > /fixtures/new"))
		if strings.Contains(res.Stdout.Text(), "canary") {
			t.Errorf("the sandbox reads a folder of the host: %s", outputs(res))
		}
		if err := r.Cleanup(t.Context()); err != nil {
			t.Error(err)
		}
		host.check(t)
	}
}

func TestRuntime_copiesRemoved(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	env := p.environment(t, `  user: "1234:1234"`, "  extra_mounts: {a/fixtures: {bind: /fixtures, mode: rw}, a/file: /file, link: /link}")
	files := map[string]string{"a/fixtures/f": "fixture", "a/file": "file", "a/other": "other"}
	s := p.open(t, env, session.Agent, files)
	if _, err := s.Spawn(t.Context(), session.SpawnOptions{}); err == nil || !strings.Contains(err.Error(), "no such path") {
		t.Errorf("a missing mount: got %v", err)
	}
	r := spawn(t, s, session.SpawnOptions{Mounts: spec.Mounts{{Host: "a", Container: "/link"}}})
	res := execute(t, r, sh("cat /fixtures/f /file /link/other; echo new > /fixtures/f; cat a/fixtures/f; mkdir -m 0 /fixtures/closed; ln -s a/file link"))
	if outputs(res) != "||fixturefileotherfixture||exited" {
		t.Errorf("%q", outputs(res))
	}
	if _, err := s.Spawn(t.Context(), session.SpawnOptions{}); err == nil || !strings.Contains(err.Error(), "mount link: not a file or folder of the workspace") {
		t.Errorf("a link: got %v", err)
	}
	if err := r.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(s.Workspace()), "mounts", "*")); err != nil || len(left) > 0 {
		t.Errorf("copies left behind: %v, %v", left, err)
	}
}

func TestSession_Reset_race(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	host := newCanary(t)
	s := p.open(t, p.environment(t), session.Agent, map[string]string{"d/f": "start", "e/f": "start"})
	r := spawn(t, s, session.SpawnOptions{})
	swap(t, r, "d", host.dir)
	leave(t, r, `import os
while True:
    for i in range(200):
        try:
            os.makedirs("e/%d/x" % i, 0o500)
        except OSError:
            pass
`)
	for range tier.Pick(t, 3, 10, 200) {
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		host.check(t)
	}
}

func TestFinishCheckpoint_atomic(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t), session.Agent, map[string]string{"a": "0", "b": "0"})
	r := spawn(t, s, session.SpawnOptions{})
	leave(t, r, `i = 0
while True:
    i += 1
    for name in ("a", "b"):
        with open(name, "r+") as f:
            f.write("%012d" % i)
`)
	for range tier.Pick(t, 3, 10, 100) {
		c, err := s.FinishCheckpoint(t.Context())
		if err != nil {
			t.Fatal(err) // for example: it changed while it was read
		}
		if _, err := os.Stat(c.Snapshot); err != nil {
			t.Error(err)
		}
	}
	if res := execute(t, r, sh("x=$(cat a); for i in $(seq 500); do test $x != $(cat a) && echo on && break; sleep 0.01; done")); res.Stdout.Text() != "on\n" {
		t.Errorf("the frozen process does not continue: %s", outputs(res))
	}
}

// The workspace may contain anything that a program can create.
func TestFinishCheckpoint_hostileTree(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	host := newCanary(t)
	s := p.open(t, p.environment(t), session.Agent, map[string]string{"d/f": "start"})
	r := spawn(t, s, session.SpawnOptions{})
	res := execute(t, r, sh(`cat > /tmp/make.py <<'END'
import os, socket
def do(what, *args, **more):
    try:
        what(*args, **more)
    except OSError as e:
        print(what.__name__, e)
do(os.mkfifo, "fifo")
do(socket.socket(socket.AF_UNIX).bind, "socket")
for name, kind in (("null", 0o020666), ("disk", 0o060666)):
    do(os.mknod, name, kind, os.makedev(1, 3))
for name, target in (("out", "`+host.dir+`"), ("root", "/"), ("loop", "loop"), ("up", "../../../../../.."), ("proc", "/proc/self/fd/0")):
    do(os.symlink, target, name)
open("root-shell", "w").close()
os.chmod("root-shell", 0o6777)
os.link("root-shell", "second")
open("strange\n\x1b[2J", "w").close()
os.truncate(os.open("hole", os.O_CREAT | os.O_RDWR), 64 << 20)
os.makedirs("many")
for i in range(1000):
    open("many/%d" % i, "w").close()
os.makedirs("deep")
os.chdir("deep")
for i in range(1000):
    os.mkdir("d")
    os.chdir("d")
END
python3 /tmp/make.py`))
	if res.ExitCode != 0 {
		t.Fatal(outputs(res))
	}
	swap(t, r, "d", host.dir)
	checkpoints := func(n int) {
		for range n {
			if _, err := s.FinishCheckpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			host.check(t)
		}
	}
	checkpoints(tier.Pick(t, 2, 2, 200))
	if tier.Of(t) == tier.All {
		execute(t, r, sh(`python3 -c 'for i in range(100_000): open("many/%d" % i, "w").close()'`))
		checkpoints(20) // 5 s each
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Error(err)
	}
	host.check(t)
}
