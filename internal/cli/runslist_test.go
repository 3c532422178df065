package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

func TestRuns_list(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := runs.Create(filepath.Join(dir, "one"), runs.About{Task: "sums", Attempts: 4, Created: created}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for sample, res := range map[string]task.SampleResult{
		"a": {Score: &task.Score{Value: 1}}, "b": {Score: &task.Score{}, Phases: map[string]float64{"solve": 5}},
		"c": {Error: &task.Failure{Class: task.Infra, Phase: "solve"}}, "d": {Error: &task.Failure{Class: task.Canceled, Phase: "solve"}},
	} {
		res.Sample, res.Epoch, res.Started = sample, 1, created.Add(2*time.Minute)
		if err := r.Append(res); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []string{"running", "finished", "forged"} { // the last two read the summary
		want := regexp.MustCompile(`^RUN +TASK +STATE +RECORDED +PASSED +DURATION\none +sums +(running|interrupted) +3 of 4 +50\.0 % +2m5s\n$`)
		switch state {
		case "finished":
			if _, err := r.Finish(); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		case "forged":
			if err := os.WriteFile(filepath.Join(dir, "one", "summary.json"), []byte(`{"recorded": 4, "passed": 9, "duration": 1e300}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		a := &commandLine{Streams: Streams{Out: &out}}
		if err := a.listRuns(dir, false); err != nil || !want.MatchString(out.String()) {
			t.Errorf("%s: %v\n%s", state, err, &out)
		}
		out.Reset()
		var all []map[string]any
		if err := a.listRuns(dir, true); err != nil || json.Unmarshal(out.Bytes(), &all) != nil || len(all) != 1 {
			t.Fatalf("%s: %v\n%s", state, err, &out)
		}
		if got := all[0]; got["task"] != "sums" || got["recorded"] != 3.0 || got["attempts"] != 4.0 || got["pass_rate"] != 0.5 || got["duration"] != 125.0 {
			t.Errorf("%s: got %v", state, got)
		}
	}
}
