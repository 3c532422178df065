package server

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval/runs"
)

const taskFile = `
name: sums
environment: {file: env.yaml}
expect: {stdout: {exact: "42\n"}}
samples:
  - {id: right, command: echo 42}
  - {id: wrong, command: echo 41}
`

// events reads the events of an evaluation from one on.
func (c *served) evaluated(path string) []api.EvalEvent {
	c.t.Helper()
	resp := c.send("GET", path, nil)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatal(resp.Status)
	}
	var all []api.EvalEvent
	for d := json.NewDecoder(resp.Body); ; {
		var ev api.EvalEvent
		err := d.Decode(&ev)
		if err == io.EOF {
			return all
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if ev.Event != api.EventHeartbeat {
			all = append(all, ev)
		}
	}
}

func TestEvaluation(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"task.yaml": taskFile, "env.yaml": "type: local\n"})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	options := api.EvaluationOptions{Task: dir, Runs: filepath.Join(dir, "runs")}
	var e, again api.Evaluation
	c.ok("POST", "/v1/evaluations", options, &e, "Idempotency-Key", c.lease+"-eval")
	c.ok("POST", "/v1/evaluations", options, &again, "Idempotency-Key", c.lease+"-eval")
	if again.ID != e.ID {
		t.Errorf("a repeat started %s, and the first request %s", again.ID, e.ID)
	}
	one := "/v1/evaluations/" + e.ID
	all := c.evaluated(one + "/events")
	last := all[len(all)-1]
	if last.Event != api.EvalEnd || last.Summary.Passed != 1 || last.Summary.Failed != 1 {
		text, err := json.Marshal(all)
		t.Fatalf("the events are %s, %v", text, err)
	}
	if all[0].Event != api.EvalStart || all[0].Attempts != 2 {
		t.Errorf("the first event is %+v", all[0])
	}
	scores := map[string]float64{}
	for _, ev := range all {
		if ev.Event == api.EvalResult {
			scores[ev.Result.Sample] = ev.Result.Score.Value
		}
	}
	if scores["right"] != 1 || scores["wrong"] != 0 || len(scores) != 2 {
		t.Errorf("scores %v", scores)
	}
	if rest := c.evaluated(one + "/events?from=2"); len(rest) != len(all)-2 {
		t.Errorf("%d of %d events follow the second", len(rest), len(all))
	}
	c.ok("GET", one, nil, &e)
	if !e.Ended || e.Error != nil || filepath.Dir(e.Run) != filepath.Join(dir, "runs") {
		t.Errorf("got %+v", e)
	}
	var samples []string
	resp := c.send("GET", one+"/results", nil)
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); d.More(); {
		var line recorded
		if err := d.Decode(&line); err != nil || line.Error != nil {
			t.Fatalf("%v, %+v", err, line)
		}
		samples = append(samples, line.Result.Sample)
	}
	if slices.Sort(samples); !slices.Equal(samples, []string{"right", "wrong"}) {
		t.Errorf("results of %q", samples)
	}
	c.ok("DELETE", one, nil, nil)
	c.fails(404, fumehood.CodeUnavailable, "GET", one, nil)
}

func TestEvaluation_canceled(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"env.yaml": "type: local\n", "task.yaml": "{name: slow, environment: {file: env.yaml}, samples: [{id: a, command: sleep 1000}]}\n"})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	var e api.Evaluation
	c.ok("POST", "/v1/evaluations", api.EvaluationOptions{Task: dir, Runs: dir}, &e)
	resp := c.send("GET", "/v1/evaluations/"+e.ID+"/events", nil)
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var ev api.EvalEvent
		if err := d.Decode(&ev); err != nil {
			t.Fatal(err)
		}
		if ev.Event == api.EvalProgress && ev.Running == 1 {
			break
		}
	}
	c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil)
	if left := c.left(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if all, err := runs.List(dir); err != nil || len(all) > 1 {
		t.Errorf("runs %v, %v", all, err)
	}
}

func TestEvaluation_errors(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"task.yaml": "name: x\ntypo: 1\n", "docker.yaml": "{name: x, environment: {image: b}, samples: [{id: a, command: a}]}\n"})
	c := serve(t, Options{Permit: Permit{HostPaths: []string{dir}}})
	for file, code := range map[string]fumehood.Code{"task.yaml": fumehood.CodeConfig, "docker.yaml": fumehood.CodeConfig, "missing.yaml": fumehood.CodeConfig} {
		var e api.Evaluation
		c.ok("POST", "/v1/evaluations", api.EvaluationOptions{Task: filepath.Join(dir, file), Runs: dir}, &e)
		all := c.evaluated("/v1/evaluations/" + e.ID + "/events")
		if len(all) != 1 || all[0].Event != api.EventError || all[0].Error.Code != code {
			t.Errorf("%s: %+v", file, all)
		}
		c.ok("GET", "/v1/evaluations/"+e.ID, nil, &e)
		if !e.Ended || e.Error == nil || e.Error.Code != code {
			t.Errorf("%s: %+v", file, e)
		}
		c.fails(404, fumehood.CodeUnavailable, "GET", "/v1/evaluations/"+e.ID+"/results", nil)
	}
	c.fails(400, fumehood.CodeConfig, "POST", "/v1/evaluations", api.EvaluationOptions{Task: dir})
}
