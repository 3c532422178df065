package score_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/filetest"
)

const python = "fumehood-test/python"

// attempted runs a task that attempts its one sample with a shell script, as the code under test. It calls f to
// score it.
func attempted(t *testing.T, p fumehood.Provider, script string, f func(a *task.Attempt)) {
	t.Helper()
	opts := task.Options{
		Name: "grading", Provider: p, Spec: fumehood.Spec{Image: python, Dir: "/work"},
		Samples: []task.Sample{{ID: t.Name(), Others: []fumehood.Spec{{Image: python}}}},
	}
	how := task.RunOptions{Retries: -1, Solve: func(ctx context.Context, a *task.Attempt) error {
		cmd := fumehood.Cmd{Args: []string{"bash", "-c", script}, Timeout: time.Minute}
		res, err := a.Sandbox.Exec(ctx, cmd)
		if err == nil && !res.Success() {
			err = fmt.Errorf("the attempt failed: %+v", res)
		}
		a.Steps = append(a.Steps, task.Step{Name: "1", Cmd: cmd, Result: res})
		return err
	}, Score: func(_ context.Context, a *task.Attempt) (task.Score, error) {
		f(a)
		return task.Score{Value: 1}, nil
	}}
	for res, err := range task.Run(t.Context(), opts, how) {
		if err != nil || res.Error != nil {
			t.Errorf("%+v, %v", res.Error, err)
		}
	}
}

// graded grades such an attempt.
func graded(t *testing.T, p fumehood.Provider, g *score.Grader, script string) (got task.Score, err error) {
	t.Helper()
	attempted(t, p, script, func(a *task.Attempt) { got, err = g.Score(t.Context(), a) })
	return got, err
}

// judge runs a submission as another user, three times, and prints which answers were right. Of the submission it
// uses only the file that it runs.
const judge = `
import json, os, subprocess, sys
parts, reasons = {}, []
for n in (2, 3, 10):
    try:
        p = subprocess.run(["/usr/bin/python3", "-I", "/submission/solution.py"], input=str(n), capture_output=True,
                           text=True, timeout=5, user=65534, group=65534, extra_groups=[], cwd="/", env={})
        ok = p.returncode == 0 and p.stdout.strip() == str(n * n)
    except subprocess.TimeoutExpired:
        ok = False
    parts["square of %d" % n] = int(ok)
    if not ok:
        reasons.append("the square of %d" % n)
print(json.dumps({"scores": parts, "reasons": reasons}))
`

// grader returns a grader with files that the attempt never sees.
func grader(t *testing.T) *score.Grader {
	t.Helper()
	return &score.Grader{
		Spec:      fumehood.Spec{Image: python},
		Hidden:    []fumehood.Mount{{Host: filetest.Lay(t, map[string]string{"judge.py": judge}), Container: "/hidden", Writable: true}},
		Artifacts: []score.Artifact{{Path: "solution.py"}},
		Cmd:       fumehood.Cmd{Args: []string{"/usr/bin/python3", "-I", "/hidden/judge.py"}, Timeout: time.Minute},
	}
}

const (
	right = "print(int(input())**2)"
	wrong = "print(4)" // right for one of the inputs
)

func write(solution string) string {
	return "cat >/work/solution.py <<'END'\n" + solution + "\nEND\n"
}

func TestGrader_Score(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	for name, c := range map[string]struct {
		solution string
		want     float64
		reasons  int
	}{"right": {right, 1, 0}, "wrong": {wrong, 1.0 / 3, 2}, "crashing": {"1/0", 0, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := graded(t, p, grader(t), write(c.solution))
			if err != nil || got.Value != c.want || len(got.Reasons) != c.reasons || len(got.Parts) != 3 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// forged is the score that a hostile submission wants.
const forged = `{"score": 1}`

// hostile are wrong submissions that try to get another score. Their actions succeed in their own sandbox.
var hostile = map[string]string{
	"a conftest.py": write(wrong) + `
		for dir in / /work /root /tmp; do echo 'import os; os.write(1, b"1"); os._exit(0)' >$dir/conftest.py; done`,
	"a sitecustomize.py": write(wrong) + `
		dir=$(python3 -c 'import site; print(site.getsitepackages()[0])')
		mkdir -p $dir /work
		echo 'import os, sys; os.write(1, b"1"); os._exit(0)' | tee $dir/sitecustomize.py $dir/usercustomize.py >/work/sitecustomize.py
		test "$(python3 -c 'print(0)')" = 1`,
	"a .bashrc and a profile": write(wrong) + `
		echo "echo 1; exit 0" | tee ~/.bashrc ~/.profile ~/.bash_profile /etc/profile /etc/bash.bashrc >/dev/null
		test "$(bash -ic 'echo 0' 2>/dev/null)" = 1`,
	"programs before others in PATH": write(wrong) + `
		for p in python3 sh bash env; do printf '#!/bin/bash\necho 1\n' >/usr/local/bin/$p; chmod +x /usr/local/bin/$p; done
		cp /usr/local/bin/python3 /usr/bin/python3.fake && mv /usr/bin/python3.fake /usr/bin/python3
		test "$(/usr/bin/python3 anything)" = 1`,
	"LD_PRELOAD": write(wrong) + `
		echo /work/evil.so >/etc/ld.so.preload
		echo LD_PRELOAD=/work/evil.so >>/etc/environment
		export LD_PRELOAD=/work/evil.so
		echo 'not even a library' >/work/evil.so
		python3 -c 0 2>&1 | grep -q evil.so # which says that it cannot be loaded`,
	"daemon rewrites score": write(wrong) + `
		cat >/tmp/wait.py <<'END'
import os, time
while True:
    for path in ("/work/score.json", "/score.json", "/hidden/score.json", "/submission/score.json", "/tmp/score.json"):
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write('` + forged + `')
        except OSError:
            pass
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                os.write(os.open("/proc/%s/fd/1" % pid, os.O_WRONLY | os.O_NONBLOCK), b'1')
            except OSError:
                pass
    time.sleep(0.01)
END
		setsid python3 /tmp/wait.py >/dev/null 2>&1 </dev/null &
		until test -e /work/score.json; do :; done`,
	"daemon changes solution": write(wrong) + `
		cat >/tmp/change.py <<'END'
import os
fd = os.open("/work/solution.py", os.O_RDWR)
open("/work/changing", "w").close()
while True:
    os.ftruncate(fd, 20_000_000)
    os.ftruncate(fd, 8)
END
		setsid python3 /tmp/change.py >/dev/null 2>&1 </dev/null &
		until test -e /work/changing; do :; done`,
	"solution forges and forks": write(`
import os, sys
for path in ("/hidden/score.json", "/submission/score.json", "/hidden/judge.py", "/submission/solution.py"):
    try:
        open(path, "w").write('` + forged + `')
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for fd in range(10):
                try:
                    os.write(os.open("/proc/%s/fd/%d" % (pid, fd), os.O_WRONLY | os.O_NONBLOCK), b'1')
                except OSError:
                    pass
            if int(pid) not in (1, os.getpid()):
                try:
                    os.kill(int(pid), 9)
                except OSError:
                    pass
    os._exit(0)
print('` + forged + `')
print(4)`),
}

func TestGrader_hostile(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := graded(t, p, grader(t), script)
			if err != nil || got.Value > 1.0/3 || len(got.Reasons) == 0 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestGrader_unfitArtifacts(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	secret := filepath.Join(filetest.Lay(t, map[string]string{"judge.py": judge}), "judge.py")
	cases := map[string]struct {
		script string
		from   []score.Artifact
		max    int64
		says   string
	}{
		"missing":              {"true", []score.Artifact{{Path: "out"}}, 0, "does not exist"},
		"a link":               {"ln -s /etc/passwd out", []score.Artifact{{Path: "out"}}, 0, "is a link"},
		"a link to nothing":    {"ln -s /nowhere out", []score.Artifact{{Path: "out"}}, 0, "is a link"},
		"a link to the host":   {"ln -s " + secret + " out", []score.Artifact{{Path: "out"}}, 0, "is a link"},
		"a link in a folder":   {"mkdir out; ln -s /hidden/judge.py out/x", []score.Artifact{{Path: "out"}}, 0, `its "x" is a link`},
		"a hard link":          {"mkdir out; echo 1 >out/a; ln out/a out/b", []score.Artifact{{Path: "out"}}, 0, "is a link"},
		"a pipe":               {"mkfifo out", []score.Artifact{{Path: "out"}}, 0, "pipe"},
		"a pipe in a folder":   {"mkdir out; mkfifo out/p", []score.Artifact{{Path: "out"}}, 0, `its "p" cannot be copied: "pipe"`},
		"a device":             {"mknod out c 1 5 || mkfifo out", []score.Artifact{{Path: "out"}}, 0, "device"},
		"too large":            {"head -c 100000 /dev/zero >out", []score.Artifact{{Path: "out"}}, 10_000, "more bytes"},
		"a file with holes":    {"truncate -s 1T out", []score.Artifact{{Path: "out"}}, 0, "more bytes"},
		"too large together":   {"head -c 6000 /dev/zero | tee a >b", []score.Artifact{{Path: "a"}, {Path: "b"}}, 10_000, "more bytes"},
		"too many":             {"mkdir out; cd out; seq 101 | xargs touch", []score.Artifact{{Path: "out"}}, 0, "more files"},
		"below what is a file": {"touch out", []score.Artifact{{Path: "out/x"}}, 0, "does not exist"},
	}
	// Each attempt serves several cases, each with its own folder.
	for names := range slices.Chunk(slices.Sorted(maps.Keys(cases)), 4) {
		t.Run("attempt", func(t *testing.T) {
			t.Parallel()
			script := "set -e"
			for _, name := range names {
				script += fmt.Sprintf("\nmkdir -p '/work/%s'; cd '/work/%s'; %s", name, name, cases[name].script)
			}
			attempted(t, p, script, func(a *task.Attempt) {
				for _, name := range names {
					t.Run(name, func(t *testing.T) {
						c, g := cases[name], grader(t)
						g.MaxBytes, g.MaxFiles, g.Artifacts = c.max, 100, nil
						for _, artifact := range c.from {
							g.Artifacts = append(g.Artifacts, score.Artifact{Path: name + "/" + artifact.Path})
						}
						got, err := g.Score(t.Context(), a)
						if err != nil || got.Value != 0 || len(got.Reasons) != 1 || !strings.Contains(got.Reasons[0], c.says) {
							t.Errorf("got %+v, %v", got, err)
						}
					})
				}
			})
		})
	}
}

func TestGrader_artifactContent(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	g := &score.Grader{
		Spec: fumehood.Spec{Image: python}, ByExitCode: true,
		Artifacts: []score.Artifact{{Path: "tree"}, {Path: "/work/one", To: "/deep/er/uno"}, {Path: "none", Optional: true}},
		Cmd: fumehood.Cmd{Args: []string{"sh", "-exc", `
			test "$(ls /submission)" = tree
			cd /submission/tree
			test "$(find . | sort | tr '\n' ,)" = ".,./a b,./a b/c,./a b/c/ü,./empty,./run,"
			test "$(od -An -c "a b/c/ü" | tr -d ' ')" = 'x\0y'
			test "$(./run)" = ran
			test "$(stat -c %a run)" = 755
			test "$(cat /deep/er/uno)" = one
			test "$(stat -c %a:%u /deep/er/uno)" = 644:0
			test ! -e /submission/none
		`}},
	}
	got, err := graded(t, p, g, `cd /work; mkdir -p "tree/a b/c" tree/empty; printf 'x\0y' >"tree/a b/c/ü"; printf '#!/bin/sh\necho ran\n' >tree/run; chmod 4755 tree/run; echo one >one; chmod 000 one`)
	if err != nil || !got.Passed() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestGrader_isolation(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	g := grader(t)
	host := g.Hidden[0].Host
	g.ByExitCode, g.Artifacts = true, nil
	g.Cmd.Args = []string{"sh", "-c", "test $(ls /sys/class/net) = lo && touch /hidden/x && rm /hidden/judge.py"}
	got, err := graded(t, p, g, "true")
	if err != nil || !got.Passed() {
		t.Errorf("got %+v, %v", got, err)
	}
	if entries, err := os.ReadDir(host); err != nil || len(entries) != 1 || entries[0].Name() != "judge.py" {
		t.Errorf("files of the host: %v, %v", entries, err)
	}
}

func TestGrader_hidden(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	for name, c := range map[string]struct{ user, read string }{
		"root": {"", "python3 -c 'import os; os.setgid(65534); os.setuid(65534); os.execvp(\"cat\", [\"cat\", \"/a/b/hidden/dir/f\"])'"},
		"user": {"1234:1234", "sh -c 'test ! -w /a/b && id -u >&2; exit 1'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := grader(t)
			dir := filetest.Lay(t, map[string]string{"dir/f": "hidden", "run": "#!/bin/sh\necho ran\n"})
			if err := errors.Join(os.Chmod(dir+"/run", 0o777), os.Symlink("dir/f", dir+"/link")); err != nil {
				t.Fatal(err)
			}
			g.Hidden = []fumehood.Mount{{Host: dir, Container: "/a/b/hidden"}, {Host: dir + "/run", Container: "/one"}, {Host: dir + "/link", Container: "/linked"}}
			g.ByExitCode, g.Artifacts, g.Cmd.User = true, nil, c.user
			uid := cmp.Or(c.user, "0:0")
			g.Cmd.Args = []string{"sh", "-ec", `
				test "$(cat /a/b/hidden/dir/f /a/b/hidden/link)" = hiddenhidden
				test "$(/a/b/hidden/run) $(/one) $(cat /linked)" = "ran ran hidden"
				test "$(stat -c %a:%u:%g /a/b/hidden /a/b/hidden/dir /a/b/hidden/dir/f /a/b/hidden/run /one | tr '\n' ' ')" = "700:` + uid + ` 700:` + uid + ` 600:` + uid + ` 700:` + uid + ` 700:` + uid + ` "
				! ` + c.read}
			got, err := graded(t, p, g, "true")
			if err != nil || !got.Passed() {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	g := grader(t)
	g.Spec.Mounts = []fumehood.Mount{{Host: t.TempDir(), Container: "/hidden/x"}}
	if err := g.Validate(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "is mounted") {
		t.Errorf("got %v", err)
	}
	g = grader(t)
	g.Hidden[0].Host = "/etc"
	if err := g.Validate(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "is not safe") {
		t.Errorf("got %v", err)
	}
}

func TestGrader_resourceLimits(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	for name, c := range map[string]struct {
		args   []string
		wall   time.Duration
		memory int64
		says   string
	}{
		"time":   {[]string{"sleep", "1000"}, time.Second, 128 << 20, "the grader's command timed out"},
		"memory": {[]string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}, time.Minute, 128 << 20, "the grader's command ran out of memory"},
		// If no single process has the memory, the kernel kills all of them.
		"memory of its sandbox": {[]string{"dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M"}, time.Minute, 32 << 20, "the grader's command ran out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := grader(t)
			g.Cmd, g.Spec.Limits.Memory = fumehood.Cmd{Args: c.args, Timeout: c.wall}, c.memory
			got, err := graded(t, p, g, write(right))
			if err != nil || got.Value != 0 || len(got.Reasons) != 1 || !strings.Contains(got.Reasons[0], c.says) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A submission may take all processes of the grader's sandbox. That must not become an error of the grader.
func TestGrader_processLimit(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	const bomb = `import os, time
os.setsid()
for fd in range(3): os.close(fd)
while True:
    try:
        if os.fork() == 0: pass
    except OSError: time.sleep(0.001)`
	const judge = `import subprocess
subprocess.Popen(["/usr/bin/python3", "-I", "/submission/solution.py"], user=65534, group=65534, extra_groups=[], cwd="/", env={})
while True: subprocess.run(["/bin/true"])`
	g := grader(t)
	g.Hidden[0].Host = filetest.Lay(t, map[string]string{"judge.py": judge})
	g.Spec.Limits.PIDs = 64
	got, err := graded(t, p, g, write(bomb))
	if err != nil || got.Value != 0 || len(got.Reasons) != 1 || !strings.Contains(got.Reasons[0], "limit of processes") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestGrader_errors(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	cases := map[string]struct {
		args  []string
		wall  time.Duration
		class error
		says  string
	}{
		"no score":          {[]string{"echo", "passed"}, 0, fumehood.ErrConfig, "has printed no score"},
		"two scores":        {[]string{"echo", "1 1"}, 0, fumehood.ErrConfig, "has printed no score"},
		"nothing":           {[]string{"true"}, 0, fumehood.ErrConfig, "has printed no score"},
		"too much":          {[]string{"sh", "-c", "yes | head -c 1000000; echo 1"}, 0, fumehood.ErrConfig, "1000002 bytes"},
		"a crash after a 1": {[]string{"sh", "-c", "echo 1; echo why >&2; exit 3"}, 0, fumehood.ErrConfig, `code 3, and not with 0; the end of its standard error: "why"`},
		"no such program":   {[]string{"no-such-program"}, 0, fumehood.ErrProgramNotFound, "no-such-program"},
	}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(cases)), 3) {
		t.Run("attempt", func(t *testing.T) {
			t.Parallel()
			attempted(t, p, write(right), func(a *task.Attempt) {
				for _, name := range names {
					t.Run(name, func(t *testing.T) {
						c, g := cases[name], grader(t)
						g.Cmd = fumehood.Cmd{Args: c.args, Timeout: c.wall}
						got, err := g.Score(t.Context(), a)
						if !errors.Is(err, c.class) || !strings.Contains(fmt.Sprint(err), c.says) || got.Value != 0 {
							t.Errorf("got %+v, %v", got, err)
						}
					})
				}
			})
		})
	}
	t.Run("processor time", func(t *testing.T) {
		t.Parallel()
		g := grader(t)
		g.Cmd = fumehood.Cmd{Args: []string{"echo", "1"}, CPUTime: time.Minute} // the Engine's exec limits no command
		if got, err := graded(t, p, g, write(right)); !errors.Is(err, fumehood.ErrUnsupported) || got.Value != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("exit code", func(t *testing.T) {
		t.Parallel()
		attempted(t, p, write(right), func(a *task.Attempt) {
			for _, args := range [][]string{{"false"}, {"sh", "-c", "kill -9 $$"}, {"sleep", "1000"}} {
				g := grader(t)
				g.Cmd, g.ByExitCode = fumehood.Cmd{Args: args, Timeout: 2 * time.Second}, true
				if got, err := g.Score(t.Context(), a); err != nil || got.Value != 0 || len(got.Reasons) != 1 {
					t.Errorf("%q: %+v, %v", args, got, err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if got, err := grader(t).Score(ctx, a); !errors.Is(err, fumehood.ErrCanceled) {
				t.Errorf("canceled: got %+v, %v", got, err)
			}
		})
	})
}

func TestExpect_files(t *testing.T) {
	t.Parallel()
	script := "cd /work; echo 42 >out; ln -s out link; mkdir dir; mkfifo pipe; truncate -s 1G large; ln -s /nowhere dangling; ln -s /$(printf %0300d 0) long"
	attempted(t, dockertest.Provider(t, docker.Options{NoSweep: true}), script, func(a *task.Attempt) { expectsFiles(t, a) })
}

func expectsFiles(t *testing.T, a *task.Attempt) {
	for name, c := range map[string]struct {
		path string
		file *score.File
		says string
	}{
		"there":                {"out", nil, ""},
		"as it is":             {"/work/out", &score.File{Text: score.Text{Exact: new("42\n")}}, ""},
		"by its service":       {"default:out", &score.File{Text: score.Text{Trimmed: new("42")}}, ""},
		"not as it is":         {"out", &score.File{Text: score.Text{Exact: new("41\n")}}, `the file "out" is "42\n"`},
		"not there":            {"none", nil, "does not exist"},
		"absent":               {"none", &score.File{Absent: true}, ""},
		"not absent":           {"out", &score.File{Absent: true}, "expected not to be"},
		"a link is not absent": {"dangling", &score.File{Absent: true}, "expected not to be"},
		"a link":               {"link", nil, "a link"},
		"a folder":             {"dir", nil, "a folder"},
		"a pipe":               {"pipe", nil, "a pipe"},
		"too large":            {"large", nil, "more bytes"},
		"too long":             {"long/x", nil, "too long"},
		"absent, too long":     {"long/x", &score.File{Absent: true}, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			scorer := score.Expectations(&score.Expect{Files: map[string]*score.File{c.path: c.file}}, nil)
			got, err := scorer(t.Context(), a)
			output := strings.Join(got.Reasons, "; ")
			if err != nil || got.Passed() != (c.says == "") || !strings.Contains(output, c.says) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
