package examples

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/examples/internal/verdicts"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/test/filetest"
	"github.com/fumehood/fumehood/test/tier"
)

// evaluation is a finished run of fumehood eval.
type evaluation struct {
	stdout  string
	run     *runs.Folder
	results map[string]task.SampleResult // by sample
}

// sharedSecret returns an environment variable that makes a program use the tests' secret, and so the volume of their
// guest.
func sharedSecret(t *testing.T) string {
	t.Helper()
	file, err := owner.SecretFile()
	if err != nil {
		t.Fatal(err)
	}
	return owner.SecretVariable + "=" + file
}

// eval runs `fumehood eval DIR ARG...` in an empty folder. It fails t if the program fails or leaves anything behind.
func eval(t *testing.T, dir string, args ...string) evaluation {
	t.Helper()
	needDocker(t)
	lookAt(t, dir)
	path, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	state, folder := t.TempDir(), t.TempDir()
	// Few sandboxes at once, so that honest programs stay within their time limits while other tests run.
	args = append([]string{"eval", path, "--max-sandboxes", "3"}, args...)
	cmd, stdout, stderr := command(t, "fumehood", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, sharedSecret(t))
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for _, left := range leftBehind(t, cmd.Process.Pid, state) {
		t.Errorf("left behind: %s", left)
	}
	all, err := runs.List(filepath.Join(folder, "fumehood-runs"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d runs, want 1: %v", len(all), err)
	}
	ended := evaluation{run: all[0].Folder, stdout: stdout.String(), results: map[string]task.SampleResult{}}
	for r, err := range all[0].Results() {
		if err != nil {
			t.Fatal(err)
		}
		ended.results[r.Sample] = r
	}
	return ended
}

// leftBehind lists what a finished process has left in the daemon and in its state folder.
func leftBehind(t *testing.T, pid int, state string) []string {
	t.Helper()
	c, err := composesdk.Connect(t.Context(), composesdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	objects, err := c.Engine.Objects(t.Context(), owner.LabelOwner)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, o := range objects {
		id, err := owner.Parse(o.Labels[owner.LabelOwner])
		if err == nil && id.PID == pid && o.Labels[owner.LabelCache] == "" {
			left = append(left, string(o.Kind)+" "+o.Name)
		}
	}
	folders, err := filepath.Glob(filepath.Join(state, "fumehood", "docker", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(left, folders...)
}

// firstOfEachKind returns one sample for each verdict in each language. To reach a time limit, it prefers a sample that
// waits to one that computes.
func firstOfEachKind(samples []*taskfile.Sample) []*taskfile.Sample {
	const waits = "maze/stubborn.sh"
	kind := func(s *taskfile.Sample) string { return s.Metadata["verdict"] + path.Ext(s.ID) }
	var first []*taskfile.Sample
	for _, s := range samples {
		at := slices.IndexFunc(first, func(f *taskfile.Sample) bool { return kind(f) == kind(s) })
		switch {
		case at < 0:
			first = append(first, s)
		case s.ID == waits:
			first[at] = s
		}
	}
	return first
}

// TestExample_judge runs the task of `make demo`. The tiers below all judge one submission of each kind.
func TestExample_judge(t *testing.T) {
	t.Parallel()
	f, err := taskfile.Read("judge/task.yaml", taskfile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Samples) < 60 {
		t.Errorf("there are only %d submissions", len(f.Samples))
	}
	samples, whole := f.Samples, tier.Of(t) == tier.All
	var args []string
	if !whole {
		samples = firstOfEachKind(samples)
		for _, s := range samples {
			args = append(args, "--sample", s.ID)
		}
	}
	got := eval(t, "judge", args...)
	if len(got.results) != len(samples) {
		t.Errorf("got %d results of %d samples", len(got.results), len(samples))
	}
	accepted := 0
	for _, s := range samples {
		if s.Metadata["verdict"] == "accepted" {
			accepted++
		}
	}
	_, differences, err := verdicts.Compare(samples, got.run.Results())
	if err != nil {
		t.Error(err)
	}
	for _, difference := range differences {
		id, _, _ := strings.Cut(difference, ":")
		t.Errorf("%s: %+v", difference, got.results[id])
	}
	lines := strings.SplitAfter(got.stdout, "\n")
	want := fmt.Sprintf("judge: %d attempts, %d passed, %d failed\n", len(samples), accepted, len(samples)-accepted)
	if lines[0] != want {
		t.Errorf("the summary begins with %q, want %q", lines[0], want)
	}
	if whole {
		wantDocumentedSummary(t, lines)
	}
}

// wantDocumentedSummary checks that docs/eval.md shows these lines. Only the percentages of time and the run's name may differ.
func wantDocumentedSummary(t *testing.T, lines []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/eval.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), lines[0])
	shown, _, found := strings.Cut(lines[0]+shown, "```\n")
	if !found {
		t.Fatalf("docs/eval.md does not show %q", lines[0])
	}
	varies := regexp.MustCompile(`(?m)\d+ %(,|$)|\d{8}-\d{6}-judge-\w+$`)
	for i, line := range strings.SplitAfter(shown, "\n") {
		if i >= len(lines) || varies.ReplaceAllString(lines[i], "#") != varies.ReplaceAllString(line, "#") {
			t.Errorf("docs/eval.md shows\n%sand fumehood eval prints\n%s", shown, strings.Join(lines, ""))
			return
		}
	}
}

// scores returns the scores by sample. A sample without a score fails the test.
func scores(t *testing.T, got evaluation) map[string]float64 {
	t.Helper()
	byName := map[string]float64{}
	for id, r := range got.results {
		if r.Score == nil {
			t.Errorf("%s: %s", id, r.Error.Text)
			continue
		}
		byName[id] = r.Score.Value
	}
	return byName
}

func TestExample_webapp(t *testing.T) {
	t.Parallel()
	want := map[string]float64{
		"other notes, version 1": 1, "other notes, version 2": 0, "other notes, version 3": 0,
		"second order, version 1": 1, "second order, version 2": 1, "second order, version 3": 0,
		"passwords": 0, "database": 0, "liar": 0,
	}
	if got := scores(t, eval(t, "webapp")); !maps.Equal(got, want) {
		t.Errorf("the scores are %v, want %v", got, want)
	}
}

func TestExample_repair(t *testing.T) {
	tier.Need(t, tier.All) // it takes minutes
	t.Parallel()
	want := map[string]float64{
		"right": 1, "visible tests only": 0.5, "half": 0.25, "nothing": 0.125, "stale": 0.125,
		"tests rewritten": 0.125, "conftest": 0.125, "early exit": 0, "always equal": 0, "link": 0, "reads hidden tests": 0.125,
	}
	if got := scores(t, eval(t, "repair")); !maps.Equal(got, want) {
		t.Errorf("the scores are %v, want %v", got, want)
	}
}

// TestExample_cheats runs examples/cheats. Each submission must get a score at its first try: none may drop out of the
// pass rate or change the score of another. The submissions load the machine, so the quick and ci tiers run only some
// of them.
func TestExample_cheats(t *testing.T) {
	t.Parallel()
	f, err := taskfile.Read("cheats/task.yaml", taskfile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var samples []*taskfile.Sample
	var args []string
	tried := tier.Pick(t, 2, 2, 10) // of each ten submissions
	for i, s := range f.Samples {
		if i%10 < tried || strings.HasPrefix(s.ID, "right") {
			samples, args = append(samples, s), append(args, "--sample", s.ID)
		}
	}
	got := eval(t, "cheats", args...)
	if files, err := filepath.Glob("cheats/submissions/*"); err != nil || len(files)+2 != len(f.Samples) || len(files) < 40 {
		t.Errorf("%d submissions, of which one is run three times, do not match %d samples: %v", len(files), len(f.Samples), err)
	}
	for id, score := range scores(t, got) {
		want := 0.0
		if strings.HasPrefix(id, "right") {
			want = 1
		}
		if r := got.results[id]; score != want || r.Tries != 1 {
			t.Errorf("%s: the score is %v at try %d, want %v at try 1: %+v", id, score, r.Tries, want, r)
		}
	}
	if len(got.results) != len(samples) {
		t.Errorf("got %d results of %d samples", len(got.results), len(samples))
	}
}

// yamlOf returns the blocks of YAML in a page.
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

func TestDocs_tasks(t *testing.T) {
	blocks := yamlOf(t, "../docs/eval.md")
	repair, err := os.ReadFile("repair/task.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(blocks, string(repair)) {
		t.Errorf("docs/eval.md does not quote repair/task.yaml exactly:\n%s", repair)
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
		path := "repair/task.yaml"
		if block != string(repair) { // with the files that README.md names
			path = filepath.Join(filetest.Lay(t, map[string]string{"task.yaml": block, "right.py": "", "wrong.py": ""}), "task.yaml")
		}
		if _, err := taskfile.Read(path, taskfile.ReadOptions{}); err != nil {
			t.Error(err)
		}
	}
	if read != 2 {
		t.Errorf("read %d tasks, want 2: one of README.md and one of docs/eval.md", read)
	}
}
