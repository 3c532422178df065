package taskfile

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// An attempt whose sandbox ends while it is solved or scored has no score. Its record has what was written before, and what
// happened.
func TestTask_sandboxEnds(t *testing.T) {
	t.Parallel()
	inDocker := func(t *testing.T) fumehood.Provider { return dockertest.Provider(t, docker.Options{}) }
	for name, c := range map[string]struct {
		provider func(t *testing.T) fumehood.Provider
		end      func(t *testing.T, token string)
		reasons  []string // any of them; a removal first kills
	}{
		"docker killed":  {inDocker, killed, []string{"has exited with code 137: it was killed from outside"}},
		"docker removed": {inDocker, removed, []string{"was removed", "killed or stopped through the Engine"}},
		"native killed":  {inNative, killed, []string{"killed from outside"}},
	} {
		for phase, sample := range map[string]string{
			"solve": "steps: [{name: behind, command: [sh, -c, echo behind; exec sleep 1000], background: true}, {name: lost, command: [sh, -c, SCRIPT, TOKEN]}]",
			"score": "command: [echo, solved]\n    grader: {command: [sh, -c, SCRIPT, TOKEN]}",
		} {
			t.Run(name+"/"+phase, func(t *testing.T) {
				t.Parallel()
				token := rand.Text()
				const script = "echo begun; echo error >&2; while :; do sleep 1000; done"
				text := strings.NewReplacer("NAME", "lost-"+strings.ToLower(token[:8]), "SCRIPT", script, "TOKEN", token).Replace(
					"name: NAME\nenvironment: {image: fumehood-test/busybox}\nsamples:\n  - id: one\n    " + sample + "\n")
				f, _ := mustLay(t, map[string]string{"task.yaml": text})
				p := c.provider(t)
				ctx := context.WithoutCancel(t.Context())
				t.Cleanup(func() { _ = p.Close(ctx) })
				opts, how, err := f.Task(t.Context(), p, TaskOptions{})
				if err != nil {
					t.Fatal(err)
				}
				how.Retries = -1
				var ending sync.WaitGroup
				ending.Go(func() { c.end(t, token) })
				var got task.SampleResult
				for r, err := range task.Run(t.Context(), opts, how) {
					if got = r; err != nil {
						t.Fatal(err)
					}
				}
				ending.Wait() // the Engine answers when the attempt may have ended
				if got.Score != nil || got.Error == nil || got.Error.Class != task.Infra || got.Error.Phase != phase {
					t.Fatalf("got %+v, %+v", got.Score, got.Error)
				}
				known := false
				for _, reason := range c.reasons {
					known = known || strings.Contains(got.Error.Text, reason)
				}
				if !known {
					t.Errorf("the error is %q", got.Error.Text)
				}
				want := string(task.Infra) + " in " + phase + ": " + got.Error.Text + " | behind lost -1 behind\n | lost lost -1 begun\n"
				last := got.Steps[len(got.Steps)-1]
				if phase == "score" {
					want = string(task.Infra) + " in " + phase + ": " + got.Error.Text + " | 1 exited 0 solved\n"
					if got.Grader == nil {
						t.Fatalf("got %+v", got)
					}
					last = *got.Grader
				}
				if said(got) != want {
					t.Errorf("got %s\nwant %s", said(got), want)
				}
				if last.Outcome != fumehood.Lost || last.Stdout.Text() != "begun\n" || last.Stderr.Text() != "error\n" || last.Stdout.Total != 6 || last.Duration < time.Second {
					t.Errorf("got %+v", last)
				}
			})
		}
	}
}

// inNative returns a native provider with the image fumehood-test/busybox.
func inNative(t *testing.T) fumehood.Provider {
	if err := native.CheckSupport(); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	p, err := native.New(t.Context(), native.Options{StateDir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	testimages.Load(t, p, "fumehood-test/busybox")
	return p
}

// An attempt that leaves no space in its grader's sandbox has the score 0.
func TestTask_graderDisk(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"task.yaml": `
name: t
environment: {image: fumehood-test/busybox, workdir: /work}
grader:
  command: sh /submission/x; dd if=/dev/zero of=/report bs=64k count=1 && echo 1
  artifacts: [x]
  max_size: 100MiB
  limits: {disk: 16MiB}
samples:
  - {id: honest, command: "echo true >x"}
  - {id: fills, command: "echo 'dd if=/dev/zero of=/full bs=1M; true' >x"}
  - {id: too large, command: "dd if=/dev/urandom of=x bs=1M count=20"}
`})
	for id, r := range run(t, f, inNative(t)) {
		switch {
		case r.Score == nil:
			t.Errorf("%s: no score: %+v", id, r.Error)
		case id == "honest" && r.Score.Value != 1, id != "honest" && (r.Score.Value != 0 || !strings.Contains(r.Score.Reasons[0], "pace left on device")):
			t.Errorf("%s: %+v", id, r.Score)
		}
	}
}

// found waits until a process has the token as an argument, and what it writes first has reached the host. It returns its
// folder in /proc.
func found(t *testing.T, token string) string {
	for t.Context().Err() == nil {
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range all {
			args, _ := os.ReadFile(dir + "/cmdline")
			if bytes.HasSuffix(args, []byte("\x00"+token+"\x00")) {
				<-time.After(time.Second) // 50 times the bound of what may be lost, see fumehood.Lost
				return dir
			}
		}
		<-time.After(10 * time.Millisecond)
	}
	return ""
}

// killed kills the first process of the sandbox in which a process has the token as an argument.
func killed(t *testing.T, token string) {
	space, err := os.Readlink(found(t, token) + "/ns/pid")
	if err != nil {
		t.Error(err)
		return
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		own, _ := os.Readlink(dir + "/ns/pid")
		status, _ := os.ReadFile(dir + "/status")
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if own != space || !strings.HasSuffix(ids, "\t1") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("the sandbox has no first process")
}

// removed removes the container in which a process has the token as an argument.
func removed(t *testing.T, token string) {
	groups, err := os.ReadFile(found(t, token) + "/cgroup")
	_, id, _ := bytes.Cut(groups, []byte("/docker/"))
	if err != nil || len(id) < 64 {
		t.Errorf("%s, %v", groups, err)
		return
	}
	if err := dockertest.Engine(t).Remove(t.Context(), engine.Object{Kind: engine.Container, ID: string(id[:64])}); err != nil {
		t.Error(err)
	}
}
