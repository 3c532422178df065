package taskfile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/filetest"
	"github.com/fumehood/fumehood/test/tier"
)

// run runs a task and returns its results by sample.
func run(t *testing.T, f *File, p fumehood.Provider) map[string]task.SampleResult {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	opts, how, err := f.Task(t.Context(), p, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]task.SampleResult{}
	for r, err := range task.Run(t.Context(), opts, how) {
		if err != nil {
			t.Fatal(err)
		}
		results[r.Sample] = r
	}
	return results
}

// said returns how an attempt ended: its score and reasons, or its error, and the outcomes of its steps.
func said(r task.SampleResult) string {
	var b strings.Builder
	if r.Error != nil {
		fmt.Fprintf(&b, "%s in %s: %s", r.Error.Class, r.Error.Phase, r.Error.Text)
	} else {
		fmt.Fprintf(&b, "%v %s", r.Score.Value, strings.Join(r.Score.Reasons, "; "))
	}
	for _, s := range r.Steps {
		fmt.Fprintf(&b, " | %s %s %d %s", s.Name, s.Outcome, s.ExitCode, s.Stdout.Text())
	}
	return b.String()
}

// inMemory returns a provider with programs that need no files: "cat", "exit CODE", and "serve", which runs until
// it is killed, and which "await" waits for.
func inMemory() fumehood.Provider {
	serving := make(chan struct{})
	return fake.New(fake.Options{Programs: map[string]fake.Program{
		"cat": func(_ context.Context, p *fake.Proc) int { _, _ = io.Copy(p.Stdout, p.Stdin); return 0 },
		"exit": func(_ context.Context, p *fake.Proc) int {
			code, _ := strconv.Atoi(p.Args[1])
			return code
		},
		"serve": func(ctx context.Context, p *fake.Proc) int {
			line, _ := io.ReadAll(p.Stdin)
			fmt.Fprintf(p.Stdout, "served %s", line)
			close(serving)
			<-ctx.Done()
			return 0
		},
		"await": func(ctx context.Context, p *fake.Proc) int {
			select {
			case <-serving:
				fmt.Fprint(p.Stdout, "came")
				return 0
			case <-ctx.Done():
				return 1
			}
		},
	}})
}

func TestTask_steps(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"in.txt": "from a file", "task.yaml": `
name: steps
samples:
  - {id: a command, command: [exit, "0"]}
  - {id: a command fails, command: [exit, "3"]}
  - {id: another code, command: [exit, "3"], expect: {exit_code: 3}}
  - {id: stdin, command: [cat], stdin: "typed in", expect: {stdout: {exact: typed in}}}
  - {id: stdin of a file, command: [cat], stdin: in.txt, expect: {stdout: {exact: from a file}}}
  - {id: no stdin, command: [cat], expect: {stdout: {exact: ""}}}
  - {id: only the last counts, steps: [{command: [exit, "1"]}, {command: [exit, "0"]}]}
  - {id: but for what is expected, steps: [{name: build, command: [exit, "1"], expect: {}}, {command: [exit, "0"]}]}
  - {id: more is expected of the last, steps: [{command: [cat], stdin: x, expect: {}}], expect: {stdout: {exact: y}}}
  - {id: its own is enough, steps: [{command: [exit, "2"], expect: {exit_code: [1, 2]}}]}
  - id: in the background
    steps:
      - {name: server, command: [serve], background: true, stdin: "in.txt"}
      - {command: [await], expect: {stdout: {exact: came}}}
      - {command: [exit, "0"]}
  - {id: no such program, command: [no-such]}
  - {id: no such program later, steps: [{command: [exit, "1"]}, {command: [no-such]}, {command: [exit, "0"]}]}
  - {id: no such service, command: [exit, "0"], expect: {files: {"web:x": }}}
  - {id: files, command: [exit, "0"], files: {out: here}, expect: {files: {out: {exact: here}, none: {absent: true}}}}
`})
	results := run(t, f, inMemory())
	for sample, want := range map[string]string{
		"a command":                    "1  | 1 exited 0 ",
		"a command fails":              "0 step 1: it exited with code 3, and was expected to exit with 0 | 1 exited 3 ",
		"another code":                 "1  | 1 exited 3 ",
		"stdin":                        "1  | 1 exited 0 typed in",
		"stdin of a file":              "1  | 1 exited 0 from a file",
		"no stdin":                     "1  | 1 exited 0 ",
		"only the last counts":         "1  | 1 exited 1  | 2 exited 0 ",
		"but for what is expected":     "0 step build: it exited with code 1, and was expected to exit with 0 | build exited 1 ",
		"more is expected of the last": `0 step 1: standard output is "x", and was expected to be "y" | 1 exited 0 x`,
		"its own is enough":            "1  | 1 exited 2 ",
		"in the background":            "1  | server signaled 137 served from a file | 2 exited 0 came | 3 exited 0 ",
		"files":                        "1  | 1 exited 0 ",
	} {
		if got := said(results[sample]); got != want {
			t.Errorf("%s:\n got %s\nwant %s", sample, got, want)
		}
	}
	for sample, part := range map[string]string{
		"no such program":       "config in solve: step \"1\": exec in service default: ",
		"no such program later": "0 step 2: exec in service default: ",
		"no such service":       `config in score: step "1": look up service: no service "web"`,
	} {
		if got := said(results[sample]); !strings.Contains(got, part) {
			t.Errorf("%s:\n got %s\nwant %s", sample, got, part)
		}
	}
	if got := len(results["no such program later"].Steps); got != 1 {
		t.Errorf("%d steps", got)
	}
}

func TestFile_Task_provider(t *testing.T) {
	t.Parallel()
	p, err := local.New(local.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f, _ := mustLay(t, map[string]string{"task.yaml": "{name: t, command: [a], samples: [{id: x}]}"})
	if _, _, err := f.Task(t.Context(), p, TaskOptions{}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
	f, _ = mustLay(t, map[string]string{"task.yaml": "{name: t, command: [echo, hi], environment: {file: env.yaml}, samples: [{id: x, expect: {stdout: {exact: \"hi\\n\"}}}]}", "env.yaml": "{type: local}"})
	if _, _, err := f.Task(t.Context(), inMemory(), TaskOptions{}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
	if got := said(run(t, f, p)["x"]); got != "1  | 1 exited 0 hi\n" {
		t.Errorf("got %s", got)
	}
}

func TestTask_containers(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	dir := filetest.Lay(t, map[string]string{"task.yaml": `
name: in-containers
environment: {image: fumehood-test/python, workdir: /work}
limits: {memory: 128MiB, pids: 100}
timeout: 1m
steps:
  - {name: server, command: [python3, -m, http.server, "8000"], background: true}
  - {name: wait, command: "until python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8000\")' 2>/dev/null; do :; done"}
  - {name: build, command: sh build.sh, expect: {}}
  - {name: who, command: [id, -u], user: nobody, workdir: /tmp, expect: {stdout: {trimmed: "65534"}}}
files: {build.sh: "echo 'print(6*7)' >answer.py"}
grader:
  command: [/usr/bin/python3, -I, /hidden/check.py]
  artifacts: [answer.py]
  hidden: {check.py: /hidden/check.py}
  timeout: 1m
samples:
  - {id: right}
  - {id: wrong, files: {build.sh: "echo 'print(41)' >answer.py"}}
  - {id: nothing, files: {build.sh: "exit 0"}}
  - {id: a link, files: {build.sh: "ln -s /hidden/check.py answer.py"}}
  - {id: not built, files: {build.sh: "exit 7"}}
`, "check.py": `
import json, subprocess
out = subprocess.run(["/usr/bin/python3", "-I", "/submission/answer.py"], capture_output=True, text=True, user=65534, group=65534, extra_groups=[], env={}, cwd="/").stdout
print(json.dumps({"score": int(out == "42\n"), "reasons": [] if out == "42\n" else ["it says " + out.strip()]}))
`})
	f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	results := run(t, f, p)
	for sample, want := range map[string]string{
		"right": "1 ", "wrong": "0 it says 41", "nothing": `0 the artifact "answer.py" is rejected: it does not exist`,
		"a link": `0 the artifact "answer.py" is rejected: it is a link, a device`, "not built": "0 step build: it exited with code 7",
	} {
		r := results[sample]
		if got := said(r); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", sample, got)
		}
		var names []string
		for _, s := range r.Steps {
			names = append(names, s.Name)
		}
		steps := []string{"server", "wait", "build", "who"}
		if sample == "not built" {
			steps = steps[:3]
		}
		if !slices.Equal(names, steps) || r.Steps[0].Outcome != fumehood.Signaled {
			t.Errorf("%s: %q, %+v", sample, names, r.Steps)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "check.py")); err != nil {
		t.Error(err)
	}
}

func TestTask_buildsImages(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	f, _ := mustLay(t, map[string]string{
		"task.yaml": `
name: built
command: cat /made
files: {answer: "42"}
environment: {file: env/env.yaml}
grader: {command: "test $(cat /made /submission/answer | tr -d '\n') = yes42", artifacts: [answer], score: exit_code}
samples: [{id: both}, {id: other, environment: {image: fumehood-test/busybox, workdir: /work}, command: echo, grader: {command: "test -e /submission/answer && ! test -e /made", artifacts: [answer], score: exit_code}}]
`,
		"env/env.yaml":   "{type: docker, name: test-" + strings.ToLower(rand.Text()[:10]) + ", docker: {build: {}}}",
		"env/Dockerfile": "FROM fumehood-test/busybox\nRUN echo yes >/made\n",
	})
	if _, _, err := f.Task(t.Context(), inMemory(), TaskOptions{}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	results := run(t, f, p)
	ctx := context.WithoutCancel(t.Context())
	again := dockertest.Provider(t, docker.Options{NoSweep: true})
	t.Cleanup(func() {
		if err := again.RemoveImage(ctx, provider.Image{ID: f.buildings[0].specs[0].Image}); err != nil {
			t.Error(err)
		}
	})
	if got := said(results["both"]); got != "1  | 1 exited 0 yes\n" {
		t.Errorf("got %s", got)
	}
	if got := said(results["other"]); got != "1  | 1 exited 0 \n" {
		t.Errorf("got %s", got)
	}
}

func TestTask_cpuTime(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"task.yaml": `
name: cpu
environment: {image: fumehood-test/busybox}
cpu_time: 1s
command: "while :; do :; done"
expect: {outcome: cpu-time-exceeded}
samples:
  - {id: default}
  - {id: children, command: "for i in 1 2 3 4; do (i=0; while test $i -lt 900000; do i=$((i+1)); done); done"}
  - {id: unbound, cpu_time: none, command: "while read -r stat </proc/$$/stat; do set -- $stat; test $((${14} + ${15})) -lt 130 || exit 0; done"}
  - {id: step, command: null, steps: [{command: "while :; do :; done", cpu_time: 2s}]}
`})
	results := run(t, f, dockertest.Provider(t, docker.Options{NoSweep: true}))
	for sample, want := range map[string]struct {
		outcome fumehood.Outcome
		least   time.Duration
	}{
		"default": {fumehood.CPUTimeExceeded, time.Second}, "children": {fumehood.CPUTimeExceeded, time.Second}, "unbound": {fumehood.Exited, 1200 * time.Millisecond}, "step": {fumehood.CPUTimeExceeded, 2 * time.Second},
	} {
		r := results[sample]
		if r.Error != nil || r.Steps[0].Outcome != want.outcome || r.Steps[0].Usage.User+r.Steps[0].Usage.System < want.least {
			t.Errorf("%s: %s, %+v", sample, said(r), r.Steps)
		}
	}
}

// The kernel's kill of a child decides steps and graders as it decides commands.
func TestTask_memoryOfChildren(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"task.yaml": `
name: memory
environment: {image: fumehood-test/busybox}
limits: {memory: 32MiB}
samples:
  - {id: step, command: "tail /dev/zero; exit 3", expect: {outcome: out-of-memory}}
  - {id: late, command: "tail /dev/zero; sleep 60", timeout: 5s, expect: {outcome: out-of-memory}}
  - {id: handled, command: "tail /dev/zero; exit 0"}
  - {id: beside, steps: [{name: a, command: [sleep, "60"], background: true}, {name: b, command: "tail /dev/zero; exit 3"}]}
  - {id: grader, command: [echo, x], grader: {command: "tail /dev/zero; exit 3"}}
`})
	results := run(t, f, dockertest.Provider(t, docker.Options{NoSweep: true}))
	for sample, says := range map[string]string{
		"step": "1 ", "late": "1 ", "handled": "1 ",
		"beside": "step b: it exited with code 3 (the kernel killed a process of the service for memory meanwhile, while other programs ran)",
		"grader": "the grader's command ran out of memory (the kernel killed a process of the service for memory, and the command exited with code 3)",
	} {
		if got := said(results[sample]); !strings.Contains(got, says) || strings.HasPrefix(got, "1 ") != (says == "1 ") {
			t.Errorf("%s: %s", sample, got)
		}
	}
}

// When a step breaks its sandbox, that is the outcome of its attempt. It is not an infrastructure error, and
// there is no retry.
func TestTask_stepBreaksSandbox(t *testing.T) {
	t.Parallel()
	const steps = `
steps:
  - {name: one, command: sh one.sh, timeout: 20s}
  - {name: two, command: [echo, hi], user: nobody, expect: {stdout: {trimmed: hi}}}
`
	for name, c := range map[string]struct {
		task    string
		scripts map[string]string
		works   []string // samples whose second step passes all the same
	}{
		"guest": {`
environment: {image: fumehood-test/python, workdir: /work}
limits: {memory: 48MiB, pids: 100}`, map[string]string{
			"right":              "exit 0",
			"shared memory":      "dd if=/dev/zero of=/dev/shm/x bs=1M count=500",
			"memory of no file":  `exec python3 -c "import os; f = os.memfd_create('m'); [os.write(f, bytes(1 << 20)) for _ in iter(int, 1)]"`,
			"users are a pipe":   "rm /etc/passwd; mkfifo /etc/passwd",
			"groups never end":   "rm /etc/group; ln -s /dev/zero /etc/group",
			"no valid user id":   "sed -i s/65534/4294967295/ /etc/passwd",
			"no more users":      "rm /etc/passwd",
			"the guest is gone":  "rm /etc/passwd; mkfifo /etc/passwd; for p in /proc/[0-9]*; do u=$(stat -c %u $p); test $u = 65534 && kill -9 ${p#/proc/}; done; exit 0",
			"the guest is still": "rm /etc/passwd; mkfifo /etc/passwd; for p in /proc/[0-9]*; do u=$(stat -c %u $p); test $u = 65534 && kill -STOP ${p#/proc/}; done; exit 0",
		}, []string{"right", "users are a pipe", "groups never end", "no valid user id", "no more users"}},
		"own program": {`
environment: {compose: compose.yaml}`, map[string]string{
			"right":              "exit 0",
			"shared memory":      "dd if=/dev/zero of=/dev/shm/x bs=1M count=500",
			"kills all":          "kill -9 -1",
			"kills the guest":    "for p in /proc/[0-9]*; do grep -q ^/.fumehood/guest $p/cmdline && kill -9 ${p#/proc/}; done",
			"kills the first":    "kill -TERM 1; sleep 10",
			"kills the program":  "for p in /proc/[0-9]*; do grep -q ^python3 $p/cmdline && kill -9 ${p#/proc/}; done; sleep 10",
			"and leaves no more": "rm /etc/passwd; mkfifo /etc/passwd; kill -9 -1",
		}, []string{"right"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dockertest.Provider(t, docker.Options{NoSweep: true})
			text := "name: broken\n" + strings.TrimPrefix(c.task, "\n") + steps + "samples:\n"
			for id, script := range c.scripts {
				if id == "the guest is still" && tier.Of(t) < tier.CI { // takes 30 s
					continue
				}
				text += fmt.Sprintf("  - {id: %s, files: {one.sh: %q}}\n", id, script)
			}
			dir := filetest.Lay(t, map[string]string{"task.yaml": text, "compose.yaml": `
services:
  default: {image: fumehood-test/python, working_dir: /work, mem_limit: 48m, command: [python3, -c, "import time\nwhile True: time.sleep(1)"]}
`})
			f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for id, r := range run(t, f, p) {
				either := id == "memory of no file" // the kernel may kill only the program
				if r.Score == nil || !either && r.Score.Passed() != slices.Contains(c.works, id) {
					t.Errorf("%s: %s", id, said(r))
				}
			}
		})
	}
}

// A step in the background can use up the sandbox's processes, so that the next step cannot start. The kernel's
// counters show that this is an outcome of the attempt.
func TestTask_backgroundProcesses(t *testing.T) {
	t.Parallel()
	const bomb = `
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
    except OSError:
        open("/tmp/full", "w")
        time.sleep(0.001)
`
	text := `
name: behind
environment: {image: fumehood-test/python, workdir: /work}
limits: {memory: 512MiB, pids: 100}
files: {bomb.py: bomb.py}
samples:`
	for id, keys := range map[string]string{"plain": "", "limited": ", cpu_time: 5s", "of another": ", user: games"} {
		text += fmt.Sprintf(`
  - id: %s
    steps:
      - {name: one, command: [python3, bomb.py], user: nobody, background: true}
      - {name: two, command: "while ! [ -e /tmp/full ]; do :; done", timeout: 30s}
      - {name: three, command: [echo, hi]%s}`, id, keys)
	}
	f, _ := mustLay(t, map[string]string{"bomb.py": bomb, "task.yaml": text})
	for id, r := range run(t, f, dockertest.Provider(t, docker.Options{NoSweep: true})) {
		if r.Score == nil || r.Tries != 1 { // it may pass: a command needs one process, which may be available
			t.Errorf("%s: %s", id, said(r))
		}
	}
}

// A stopped guest does not respond when the step in the background is to be killed. After a minute this counts as
// an outcome of the attempt.
func TestTask_backgroundStopsGuest(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	f, _ := mustLay(t, map[string]string{"task.yaml": `
name: behind
environment: {image: fumehood-test/python, workdir: /work}
steps:
  - {name: server, command: [sleep, "1000"], user: nobody, background: true}
  - {name: two, command: "for p in /proc/[0-9]*; do u=$(stat -c %u $p); test $u = 65534 && kill -STOP ${p#/proc/}; done; exit 0"}
samples: [{id: a}]
`})
	for id, r := range run(t, f, dockertest.Provider(t, docker.Options{NoSweep: true})) {
		if r.Score == nil || r.Score.Passed() || r.Tries != 1 {
			t.Errorf("%s: %s", id, said(r))
		}
	}
}
