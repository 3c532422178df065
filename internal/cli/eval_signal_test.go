//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood/eval/runs"
)

// When a run is interrupted, recorded scores are kept, and nothing is left of the other samples.
func TestEval_interrupted(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	cmd, dir := program(t, "eval", "task.yaml")
	task := `name: waits
environment: {image: fumehood-test/busybox}
samples:
  - {id: quick, command: "true"}
  - {id: slow, command: [sleep, "600"]}
`
	if err := os.WriteFile(filepath.Join(dir, "task.yaml"), []byte(task), 0o600); err != nil {
		t.Fatal(err)
	}
	results := func() string {
		files, _ := filepath.Glob(filepath.Join(dir, "fumehood-runs", "*", "results.jsonl"))
		if len(files) != 1 {
			return ""
		}
		text, _ := os.ReadFile(files[0])
		return string(text)
	}
	interrupted(t, cmd, syscall.SIGINT, func() {
		eventually(t, "the quick sample has its score", func() bool { return strings.Contains(results(), `"sample":"quick"`) })
	})
	all, err := runs.List(filepath.Join(dir, "fumehood-runs"))
	if err != nil || len(all) != 1 || all[0].Live {
		t.Fatalf("%d runs: %v", len(all), err)
	}
	s, err := all[0].Summary()
	if err != nil || s.Passed != 1 || s.Failed != 0 || s.Errors["canceled"] > 1 {
		t.Errorf("the summary is %+v: %v", s, err)
	}
	written, err := os.ReadFile(filepath.Join(all[0].Dir(), "summary.json"))
	var again runs.Summary
	if err == nil {
		err = json.Unmarshal(written, &again)
	}
	if err != nil || again.Recorded != s.Recorded {
		t.Errorf("the written summary is %s: %v", written, err)
	}

	// Only the canceled attempt is repeated.
	more, own := program(t, "eval", "task.yaml", "--json", "--resume", all[0].Dir())
	more.Dir = dir
	var out strings.Builder
	more.Stdout = &out
	interrupted(t, more, syscall.SIGTERM, func() { awaitContainer(t, e, own) })
	if events := strings.Split(out.String(), "\n"); !strings.HasSuffix(events[0], `"attempts":2,"recorded":1}`) || !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, `{"event":"progress","total":1,`) }) {
		t.Errorf("wrong events:\n%s", out.String())
	}
}
