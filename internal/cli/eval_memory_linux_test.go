package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/test/tier"
)

// An evaluation of 10,000 samples fits in the memory that docs/eval.md promises. All samples are recorded except 64,
// which are live at once.
func TestEval_memory(t *testing.T) {
	tier.Need(t, tier.All) // it takes minutes
	t.Parallel()
	const samples, live, most = 10_000, 64, 150 << 20
	e := needDocker(t)
	dir := t.TempDir()
	program := withoutRaceDetector(t, dir)
	var rows bytes.Buffer
	for i := range samples {
		fmt.Fprintf(&rows, "{\"id\": \"s%d\", \"command\": [\"sleep\", \"600\"], \"metadata\": {\"number\": \"%d\"}}\n", i, i)
	}
	name := filepath.Base(filepath.Dir(dir)) // unique to this test
	text := fmt.Sprintf("name: %s\nenvironment: {image: fumehood-test/busybox}\nlimits: {memory: 64MiB}\nsamples_from: [rows.jsonl]\n", name)
	for file, data := range map[string][]byte{"task.yaml": []byte(text), "rows.jsonl": rows.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recordMany(t, dir, samples, samples-live)

	cmd := exec.CommandContext(t.Context(), program, "eval", "task.yaml", "--json", "--resume", "run", "--runs", dir, "--max-sandboxes", fmt.Sprint(live+live/3)) // a quarter is started ahead
	cmd.Env, cmd.Dir = environment(dir), dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	atMost, allRan, taken := 0, false, int64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		taken = max(taken, mostMemory(cmd.Process.Pid)) // the last line comes after all has been done
		var event api.EvalEvent
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Event != "progress" {
			continue
		}
		if atMost = max(atMost, event.Running); atMost == live && !allRan {
			allRan = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v\n%s", err, &complaints)
	}
	t.Logf("%d bytes at most, with %d of %d sandboxes live", taken, atMost, live)
	if !allRan || taken == 0 || taken > most {
		t.Errorf("it took %d bytes with %d live sandboxes, want at most %d bytes with %d", taken, atMost, most, live)
	}
	left, err := e.Objects(t.Context(), owner.LabelUser+task.LabelTask+"="+name)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// withoutRaceDetector returns a program that uses as much memory as a release build. With the race detector it would
// use many times as much. In that case a program is built in dir, as `make build` builds it.
func withoutRaceDetector(t *testing.T, dir string) string {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if ok && !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return "fumehood"
	}
	return buildProgram(t, dir)
}

// buildProgram builds the program in dir, as `make build` does, and returns its path.
func buildProgram(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "fumehood")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "../../cmd/fumehood")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// mostMemory returns the peak resident memory of a process in bytes, or 0 if it has ended. wait4 is of no use here: its
// value is at least the memory that this process had when it started the other.
func mostMemory(pid int) (bytes int64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}

// recordMany creates a run of the task with recorded results for the first samples.
func recordMany(t *testing.T, dir string, samples, recorded int) {
	t.Helper()
	f, err := taskfile.Read(filepath.Join(dir, "task.yaml"), taskfile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := f.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	r, err := runs.Create(filepath.Join(dir, "run"), runs.About{Task: f.Name, Attempts: samples}, resolved)
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	for i := range recorded {
		err := to.Encode(task.SampleResult{
			Sample: fmt.Sprintf("s%d", i), Epoch: 1, Tries: 1, Sandbox: fmt.Sprintf("fumehood-memory-%d", i), Started: time.Now().UTC(),
			Score: &task.Score{Value: float64(i % 2), Reasons: []string{"as it was"}}, Phases: map[string]float64{"acquire": 0.5, "solve": 1, "remove": 0.2},
			Steps: []task.StepResult{{Name: "1", Result: fumehood.Result{Outcome: fumehood.Exited, Stdout: fumehood.Output{Total: 500, Bytes: bytes.Repeat([]byte("out\n"), 125)}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.Dir(), "results.jsonl"), lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
