package examples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/task"
	"github.com/fumehood/fumehood/taskfile"
)

// eval runs a task with the real program, and returns what became of each sample.
func eval(t *testing.T, dir string) map[string]task.SampleResult {
	t.Helper()
	needDocker(t)
	program := filepath.Join(t.TempDir(), "fumehood")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/fumehood").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			_, err = os.ReadFile(path) // for the test's cache, as lookAt does
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Few at once: an honest program has to stay within its limit on a machine that runs other tests too.
	cmd, stdout, stderr := command(t, program, "eval", dir, "--json", "--max-sandboxes", "3", "--runs", t.TempDir())
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	all := map[string]task.SampleResult{}
	lines := bufio.NewScanner(bytes.NewReader(stdout.Bytes()))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Event  string
			Result task.SampleResult
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Event == "result" {
			all[e.Result.Sample] = e.Result
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, left := range leftBehind(t, filepath.Base(dir)) {
		t.Errorf("left behind: %s %s", left.Kind, left.Name)
	}
	return all
}

// leftBehind lists what runs of a task that have ended left in the daemon.
func leftBehind(t *testing.T, of string) []fumehood.Leftover {
	t.Helper()
	p, err := docker.New(t.Context(), docker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	all, err := p.Cleanup(t.Context(), fumehood.CleanupOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(l fumehood.Leftover) bool {
		return !strings.HasPrefix(l.Sandbox, "fumehood-"+of+"-") || l.Owner == "alive"
	})
}

// verdict is what a judge says of a submission, by how its last step ended.
func verdict(r task.SampleResult) string {
	if r.Score == nil {
		return "none: " + r.Error.Text
	}
	last := r.Steps[len(r.Steps)-1]
	switch {
	case r.Score.Passed():
		return "accepted"
	case last.Name == "build":
		return "compile error"
	case last.Outcome == fumehood.TimedOut:
		return "time limit"
	case last.Outcome == fumehood.OutOfMemory:
		return "memory limit"
	case last.Outcome == fumehood.Signalled, last.ExitCode != 0, last.Name != "test 3" && strings.Contains(r.Score.Reasons[0], "no such file"):
		return "runtime error" // the last one has removed itself
	case strings.Contains(r.Score.Reasons[0], "too long"):
		return "output limit"
	}
	return "wrong answer"
}

func TestTheJudgeKnowsEachSubmission(t *testing.T) {
	f, err := taskfile.Read("judge/task.yaml", taskfile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Samples) < 60 {
		t.Errorf("there are only %d submissions", len(f.Samples))
	}
	got := eval(t, "judge")
	for _, s := range f.Samples {
		if v, known := verdict(got[s.ID]), s.Metadata["verdict"]; v != known {
			t.Errorf("%s: %s, and it is known for %s: %+v", s.ID, v, known, got[s.ID])
		}
	}
}

// scores are those of a task's samples. One without a score fails the test.
func scores(t *testing.T, all map[string]task.SampleResult) map[string]float64 {
	t.Helper()
	of := map[string]float64{}
	for id, r := range all {
		if r.Score == nil {
			t.Errorf("%s: %s", id, r.Error.Text)
			continue
		}
		of[id] = r.Score.Value
	}
	return of
}

func TestAttacksSucceedWhereTheApplicationLetsThem(t *testing.T) {
	want := map[string]float64{
		"other notes, version 1": 1, "other notes, version 2": 0, "other notes, version 3": 0,
		"second order, version 1": 1, "second order, version 2": 1, "second order, version 3": 0,
		"passwords": 0, "database": 0, "liar": 0,
	}
	if got := scores(t, eval(t, "webapp")); !maps.Equal(got, want) {
		t.Errorf("the scores are %v, want %v", got, want)
	}
}

func TestOnlyARepairIsARepair(t *testing.T) {
	want := map[string]float64{
		"right": 1, "visible tests only": 0.5, "half": 0.25, "nothing": 0.125, "stale": 0.125,
		"tests rewritten": 0.125, "conftest": 0.125, "early exit": 0, "always equal": 0, "link": 0,
	}
	if got := scores(t, eval(t, "repair")); !maps.Equal(got, want) {
		t.Errorf("the scores are %v, want %v", got, want)
	}
}

// yamlOf are the blocks of YAML in a page.
func yamlOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, block := range strings.Split(string(text), "```yaml\n") {
		if yaml, _, ok := strings.Cut(block, "```\n"); ok && i > 0 {
			all = append(all, yaml)
		}
	}
	return all
}

func TestThePagesHaveTasksAsTheyAre(t *testing.T) {
	blocks := yamlOf(t, "../docs/eval.md")
	repair, err := os.ReadFile("repair/task.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(blocks, string(repair)) {
		t.Errorf("docs/eval.md does not have this as it is:\n%s", repair)
	}
	read := 0
	for _, block := range append(blocks, yamlOf(t, "../README.md")...) {
		switch {
		case strings.HasPrefix(block, "expect:"):
			block = "name: page\nsamples: [{id: one, command: \"true\"}]\n" + block
		case !strings.HasPrefix(block, "name:"):
			continue
		}
		read++
		path := filepath.Join(t.TempDir(), "task.yaml")
		if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := taskfile.Read(path, taskfile.ReadOptions{}); err != nil {
			t.Error(err)
		}
	}
	if read != 2 {
		t.Errorf("%d tasks were read, and not those of README.md and of docs/eval.md", read)
	}
}
