package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

// recordRun records a run of two samples with three attempts each, of which one and three pass.
func recordRun(t *testing.T, dir string) *runs.Folder {
	t.Helper()
	r, err := runs.Create(dir, runs.About{Task: "sums", Attempts: 6, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		sample, value := "half", 0.0
		if i%2 == 0 {
			sample = "right"
		}
		if i%2 == 0 || i == 1 {
			value = 1
		}
		err := r.Append(task.SampleResult{
			Sample: sample, Epoch: i/2 + 1, Score: &task.Score{Value: value}, Metadata: map[string]string{"Level": sample, "level": "x"}, Started: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return r.Folder
}

func TestRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := recordRun(t, filepath.Join(dir, "one"))
	if err := os.Mkdir(filepath.Join(dir, "bad"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad", "run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	run := "run=" + url.QueryEscape(f.Dir())

	var all runList
	c.ok("GET", "/v1/runs?folder="+url.QueryEscape(dir), nil, &all)
	if len(all.Runs) != 2 || all.Runs[0].Folder != f.Dir() || all.Runs[0].State != runs.Finished || *all.Runs[0].PassRate != 4.0/6 {
		t.Fatalf("got %+v", all)
	}
	if bad := all.Runs[1]; bad.Run != "bad" || bad.State != api.RunUnreadable || bad.Error.Code != fumehood.CodeConfig || bad.Folder != filepath.Join(dir, "bad") {
		t.Errorf("got %+v", bad)
	}
	var one api.Run
	if c.ok("GET", "/v1/runs/run?"+run, nil, &one); one.Recorded != 6 || one.Folder != f.Dir() {
		t.Errorf("got %+v", one)
	}

	var got runs.Summary
	c.ok("GET", "/v1/runs/summary?by=metadata.Level&pass_at=1,2,4&"+run, nil, &got)
	want, err := f.Summarize(runs.SummaryOptions{PassAt: []int{1, 2, 4}, By: "metadata.Level"})
	if err != nil || fmt.Sprint(asJSON(t, got)) != fmt.Sprint(asJSON(t, want)) {
		t.Errorf("got %s\nnot %s, %v", asJSON(t, got), asJSON(t, want), err)
	}

	for _, format := range []string{runs.CSV, runs.JSON, runs.JUnit} {
		var want bytes.Buffer
		if err := f.Export(&want, format); err != nil {
			t.Fatal(err)
		}
		if status, data := c.answer("GET", "/v1/runs/export?format="+format+"&"+run, nil); status != 200 || !bytes.Equal(data, want.Bytes()) {
			t.Errorf("%s: %d %s", format, status, data)
		}
	}
	if status, data := c.answer("GET", "/v1/runs/results?from=4&"+run, nil); status != 200 || bytes.Count(data, []byte("\n")) != 2 {
		t.Errorf("%d %s", status, data)
	}

	if err := os.WriteFile(filepath.Join(f.Dir(), "journals", "box.jsonl"), []byte("{\"kind\":\"a\"}\n{\"kind\":\"b\"}\n{\"kind\":\"c\"}\n{\"ki"), 0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"": `{"type":"entry","number":1,"entry":{"kind":"a"}}
{"type":"entry","number":2,"entry":{"kind":"b"}}
{"type":"entry","number":3,"entry":{"kind":"c"}}
{"type":"end","number":3}
`,
		"after=1&limit=1&": `{"type":"entry","number":2,"entry":{"kind":"b"}}
{"type":"end","number":2}
`,
		"after=9&": `{"type":"end","number":3}
`,
	} {
		if status, data := c.answer("GET", "/v1/runs/journal?sandbox=box&"+query+run, nil); status != 200 || string(data) != want {
			t.Errorf("journal?%s: %d %s", query, status, data)
		}
	}
	for _, name := range []string{"missing", "../run", "%2e%2e%2frun"} {
		if status, data := c.answer("GET", "/v1/runs/journal?sandbox="+name+"&"+run, nil); status != 200 || !bytes.Contains(data, []byte(`"class":"config"`)) {
			t.Errorf("journal of %s: %d %s", name, status, data)
		}
	}
	c.fails(400, fumehood.CodeConfig, "GET", "/v1/runs/summary?by=typo&"+run, nil)
	c.fails(400, fumehood.CodeConfig, "GET", "/v1/runs/summary?pass_at=0&"+run, nil)
	c.fails(422, fumehood.CodeConfig, "GET", "/v1/runs/export?format=xml&"+run, nil)
	c.fails(400, fumehood.CodeConfig, "GET", "/v1/runs/results?run="+url.QueryEscape(filepath.Join(dir, "bad")), nil)
	c.fails(400, fumehood.CodeConfig, "GET", "/v1/runs?folder=relative", nil)
	for _, path := range []string{"/v1/runs?folder=/etc", "/v1/runs/run?run=/etc", "/v1/runs/summary?run=/etc", "/v1/runs/results?run=/etc", "/v1/runs/export?format=csv&run=/etc", "/v1/runs/journal?sandbox=x&run=/etc"} {
		c.fails(403, fumehood.CodePermission, "GET", path, nil)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A broken result is the answer of an export, and not a part of the export.
func TestRuns_broken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := recordRun(t, dir)
	results, err := os.OpenFile(filepath.Join(dir, "results.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer results.Close()
	if _, err := results.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	c.fails(400, fumehood.CodeConfig, "GET", "/v1/runs/export?format=csv&run="+url.QueryEscape(f.Dir()), nil)
}

// A run is resumed by its folder alone, as it was started.
func TestEvaluation_resumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := filepath.Join(dir, "runs", "first", "source")
	if err := os.MkdirAll(source, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"task.yaml": taskFile, "env.yaml": "type: local\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	evaluate := func(o api.EvaluationOptions) []api.EvalEvent {
		t.Helper()
		var e api.Evaluation
		c.ok("POST", "/v1/evaluations", o, &e)
		return c.evaluated("/v1/evaluations/" + e.ID + "/events")
	}
	all := evaluate(api.EvaluationOptions{Task: source, Runs: filepath.Join(dir, "runs"), Name: "first", Samples: []string{"wrong"}, Epochs: 2})
	run := filepath.Join(dir, "runs", "first")
	if last := all[len(all)-1]; all[0].Run != run || last.Event != api.EvalEnd || last.Summary.Failed != 2 {
		t.Fatalf("got %s", asJSON(t, all))
	}
	all = evaluate(api.EvaluationOptions{Resume: run})
	if last := all[len(all)-1]; all[0].Recorded != 2 || last.Event != api.EvalEnd || last.Summary.Recorded != 2 {
		t.Errorf("got %s", asJSON(t, all))
	}
	all = evaluate(api.EvaluationOptions{Resume: run, RetryFailed: true})
	if last := all[len(all)-1]; all[0].Recorded != 0 || all[0].Repeated != 2 || last.Event != api.EvalEnd || last.Summary.Recorded != 2 {
		t.Errorf("got %s", asJSON(t, all))
	}
	for _, o := range []api.EvaluationOptions{{Resume: run, Epochs: 2}, {Resume: run, Name: "x"}, {Runs: dir}, {Task: source, Runs: dir, RetryFailed: true}, {Resume: filepath.Join(dir, "missing")}} {
		c.fails(400, fumehood.CodeConfig, "POST", "/v1/evaluations", o)
	}
	c.fails(422, fumehood.CodeConfig, "POST", "/v1/evaluations", api.EvaluationOptions{Task: source, Runs: dir, Name: "../x"})
}
