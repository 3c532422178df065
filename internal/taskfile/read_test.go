package taskfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/filetest"
	"github.com/fumehood/fumehood/test/tier"
)

// lay creates files, one of which is the task file task.yaml, and reads it.
func lay(t *testing.T, files map[string]string) (*File, string, error) {
	t.Helper()
	dir := filetest.Lay(t, files)
	f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{Env: []string{"LANG=C"}})
	return f, dir, err
}

func mustLay(t *testing.T, files map[string]string) (*File, string) {
	t.Helper()
	f, dir, err := lay(t, files)
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

// all has every key of a task file.
const all = `
name: all
epochs: 3
attempt_timeout: 5m
setup_timeout: 90s
environment: {image: busybox, user: nobody, workdir: /work, env: {A: "1"}, network: none}
limits: {memory: 64MiB, cpus: 0.5, pids: 100}
metadata: {kind: general, level: easy}
files: {common.txt: data/common.txt, both: of the task}
setup: data/setup.sh
timeout: 20s
samples_from: [more.jsonl]
sample_folders: folders/*
samples:
  - id: steps
    environment: {compose: [compose.yaml], service: web}
    limits: {memory: 32MiB, cpus: none, pids: none}
    metadata: {level: hard}
    files: {both: of the sample, "web:/x": "data:,y"}
    setup: echo own
    timeout: none
    steps:
      - {name: server, command: [httpd, -f], background: true, service: web, user: "0", workdir: /srv, env: {B: "2"}}
      - command: exit 3
        stdin: data/common.txt
        timeout: 1s
        expect:
          exit_code: [3, 4]
          outcome: exited
          stdout: {exact: "", trimmed: "", contains: [a, b], regexp: ^x, json: {b: [1.50, null, true, +1_0, -.12345678901234567890, 2.e3], a: x}, numbers: {text: "1 2", absolute: 0.1, relative: 1e-3}}
          stderr: {contains: one}
          files: {out: {absent: true}, "web:/out": {exact: z}}
      - command: "true"
  - id: graded
    command: [prog, arg]
    stdin: some input
    grader:
      environment: {image: judge}
      limits: {memory: 1GiB}
      command: [judge]
      score: exit_code
      artifacts: [out.txt, {path: "web:/dir", to: /in/dir, optional: true}]
      hidden: {hidden: /hidden}
      user: nobody
      workdir: /tmp
      env: {C: "3"}
      timeout: 3m
      max_size: 1MiB
      max_files: 7
`

var allFiles = map[string]string{
	"task.yaml": all, "compose.yaml": "services: {web: {image: busybox}}", "data/common.txt": "common", "data/setup.sh": "echo set up",
	"hidden/tests.py": "", "more.jsonl": `{"id": "row", "command": ["cat"], "stdin": "\ud83d\ude00", "expect": {"exit_code": 0}}`,
	"folders/one/sample.yaml": "{command: cat own.txt, files: {own.txt: own.txt}}", "folders/one/own.txt": "own", "folders/file": "",
}

func TestRead_everyKey(t *testing.T) {
	f, dir := mustLay(t, allFiles)
	path := func(name string) string { return filepath.Join(dir, name) }
	if f.Name != "all" || f.Epochs != 3 || f.AttemptTimeout != 5*time.Minute || f.SetupTimeout != 90*time.Second || f.Provider() != "docker" {
		t.Errorf("got %+v", f)
	}
	var ids []string
	for _, s := range f.Samples {
		ids = append(ids, s.ID)
	}
	if got := strings.Join(ids, " "); got != "steps graded row one" {
		t.Fatalf("samples: got %s", got)
	}
	steps, graded, row, one := f.Samples[0], f.Samples[1], f.Samples[2], f.Samples[3]
	if want := (fumehood.Spec{
		Compose: &fumehood.Compose{Files: []string{path("compose.yaml")}, Service: "web", AllowRead: []string{filepath.Dir(path("compose.yaml"))}},
		Limits:  fumehood.Limits{Memory: 32 << 20, CPUs: fumehood.NoLimit, PIDs: fumehood.NoLimit},
	}); !reflect.DeepEqual(steps.spec, want) {
		t.Errorf("got %+v", steps.spec)
	}
	if want := (fumehood.Spec{
		Image: "busybox", User: "nobody", Dir: "/work", Env: map[string]string{"A": "1"}, Network: fumehood.Network{Mode: "none"},
		Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 0.5, PIDs: 100},
	}); !reflect.DeepEqual(graded.spec, want) {
		t.Errorf("got %+v", graded.spec)
	}
	if want := (task.Sample{
		ID: "steps", Metadata: map[string]string{"kind": "general", "level": "hard"}, Setup: task.Content{Text: "echo own"},
		Files: map[string]task.Content{"common.txt": {Path: path("data/common.txt")}, "both": {Text: "of the sample"}, "web:/x": {Data: "data:,y"}},
	}); !reflect.DeepEqual(steps.content, want) {
		t.Errorf("got %+v", steps.content)
	}
	if graded.content.Setup.Path != path("data/setup.sh") || one.content.Files["own.txt"].Path != path("folders/one/own.txt") {
		t.Errorf("got %+v and %+v", graded.content, one.content)
	}
	wantSteps := []step{
		{Step: Step{Name: "server", Command: Args{"httpd", "-f"}, Background: true, Service: "web", User: "0", Workdir: "/srv", Env: map[string]string{"B": "2"}}},
		{
			Step: Step{Name: "2", Command: Args{"sh", "-c", "exit 3"}, Timeout: time.Second, Expect: &score.Expect{
				ExitCode: []int{3, 4}, Outcome: fumehood.Exited,
				Stdout: &score.Text{
					Exact: new(""), Trimmed: new(""), Contains: []string{"a", "b"}, Regexp: "^x", JSON: json.RawMessage(`{"a":"x","b":[1.50,null,true,10,-0.12345678901234567890,2.0e3]}`),
					Numbers: &score.Numbers{Text: "1 2", Absolute: 0.1, Relative: 1e-3},
				},
				Stderr: &score.Text{Contains: []string{"one"}},
				Files:  map[string]*score.File{"out": {Absent: true}, "web:/out": {Text: score.Text{Exact: new("z")}}},
			}},
			stdin: task.Content{Path: path("data/common.txt")}, wall: time.Second,
		},
		{Step: Step{Name: "3", Command: Args{"sh", "-c", "true"}}},
	}
	if !reflect.DeepEqual(steps.steps, wantSteps) {
		t.Errorf("got  %+v\nwant %+v", steps.steps, wantSteps)
	}
	if steps.Expect == nil || graded.Expect != nil {
		t.Errorf("expectations: got %+v and %+v", steps.Expect, graded.Expect)
	}
	if want := (&score.Grader{
		Spec: fumehood.Spec{Image: "judge", Limits: fumehood.Limits{Memory: 1 << 30}}, ByExitCode: true, MaxBytes: 1 << 20, MaxFiles: 7,
		Hidden:    []fumehood.Mount{{Host: path("hidden"), Container: "/hidden"}},
		Artifacts: []score.Artifact{{Path: "out.txt"}, {Path: "web:/dir", To: "/in/dir", Optional: true}},
		Cmd:       fumehood.Cmd{Args: []string{"judge"}, User: "nobody", Dir: "/tmp", Env: map[string]string{"C": "3"}, Timeout: 3 * time.Minute},
	}); !reflect.DeepEqual(graded.grader, want) {
		t.Errorf("got  %+v\nwant %+v", graded.grader, want)
	}
	if want := []step{{Step: Step{Name: "1", Command: Args{"cat"}}, stdin: task.Content{Text: "😀"}, wall: 20 * time.Second}}; !reflect.DeepEqual(row.steps, want) {
		t.Errorf("got %+v", row.steps)
	}
}

func TestFile_Task(t *testing.T) {
	f, _ := mustLay(t, allFiles)
	p := fake.New(fake.Options{})
	opts, run, err := f.Task(t.Context(), p, TaskOptions{})
	if err != nil || opts.Name != "all" || opts.SetupTimeout != 90*time.Second || len(opts.Samples) != 4 || opts.Samples[1].Spec.Image != "busybox" {
		t.Errorf("got %+v, %v", opts, err)
	}
	if run.Epochs != 3 || run.Timeout != 5*time.Minute || run.Solve == nil || run.Score == nil {
		t.Errorf("got %+v", run)
	}
}

func TestRead_tables(t *testing.T) {
	f, dir := mustLay(t, map[string]string{
		"task.yaml": "{name: t, command: [cat], samples_from: [a.csv, b.tsv, c.yaml, d.json]}",
		"a.csv": "\ufeffid,stdin,metadata.level,files.in.txt,expect.stdout.exact,expect.exit_code,command,timeout,expect.stdout.contains\n" +
			"1,\"two\nlines\",3,in.txt,42,\"[0, 1]\",,5s,7\n" +
			"\"a,b\",,,,,,\"[prog, x]\",,\n",
		"b.tsv":  "id\tstdin\n2\ta \"quoted\" word\n",
		"c.yaml": "- &x {id: y1, stdin: in.txt}\n- {id: y2}\n",
		"d.json": `[{"id": "j", "stdin": "x"}]`,
		"in.txt": "in",
	})
	if len(f.Samples) != 6 {
		t.Fatalf("%d samples", len(f.Samples))
	}
	first, second := f.Samples[0], f.Samples[1]
	if first.ID != "1" || first.steps[0].stdin.Text != "two\nlines" || first.content.Metadata["level"] != "3" || first.content.Files["in.txt"].Path != filepath.Join(dir, "in.txt") ||
		*first.Expect.Stdout.Exact != "42" || !reflect.DeepEqual(first.Expect.ExitCode, []int{0, 1}) || first.steps[0].wall != 5*time.Second || first.Expect.Stdout.Contains[0] != "7" {
		t.Errorf("got %+v", first)
	}
	if second.ID != "a,b" || !reflect.DeepEqual(second.steps[0].Command, Args{"prog", "x"}) {
		t.Errorf("got %+v", second)
	}
	if got := f.Samples[2].steps[0].stdin.Text; got != `a "quoted" word` {
		t.Errorf("got %q", got)
	}
	if got := f.Samples[3].steps[0].stdin.Path; got != filepath.Join(dir, "in.txt") {
		t.Errorf("got %q", got)
	}
}

// Each cell takes the same time: 100,000 columns took a minute when each cell searched those before it.
func TestRead_wideTable(t *testing.T) {
	const columns = 100_000
	head, row := strings.Builder{}, strings.Builder{}
	head.WriteString("id,grader,grader.score")
	row.WriteString("a,{command: [x]},exit_code")
	for i := range columns {
		fmt.Fprintf(&head, ",metadata.k%d", i)
		fmt.Fprintf(&row, ",v%d", i)
	}
	f, _ := mustLay(t, map[string]string{
		"task.yaml": "{name: t, command: [cat], samples_from: wide.csv}",
		"wide.csv":  head.String() + "\n" + row.String() + "\n",
	})
	m := f.Samples[0].content.Metadata
	if len(m) != columns || m["k0"] != "v0" || m["k99999"] != "v99999" {
		t.Errorf("%d values", len(m))
	}
	if g := f.Samples[0].Grader; g == nil || len(g.Command) != 1 || g.Score != "exit_code" {
		t.Errorf("got %+v", g)
	}
}

// Data may come from third parties.
func TestRead_rowOutsideFiles(t *testing.T) {
	outside := filepath.Join(filetest.Lay(t, map[string]string{"secret": "s"}), "secret")
	row, err := json.Marshal(map[string]any{"id": "x", "stdin": outside, "files": map[string]string{"a": outside, "b": "../sub/in.txt", "c": "in.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filetest.Lay(t, map[string]string{
		"task.yaml":      fmt.Sprintf("{name: t, command: [cat], samples_from: sub/rows.jsonl, samples: [{id: own, stdin: %q}]}", outside),
		"sub/rows.jsonl": string(row), "sub/in.txt": "in",
	})
	f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{AllowRead: []string{outside}})
	if err != nil {
		t.Fatal(err)
	}
	own, x := f.Samples[0], f.Samples[1]
	if own.steps[0].stdin.Path != outside {
		t.Errorf("got %+v", own.steps)
	}
	want := map[string]task.Content{"a": {Text: outside}, "b": {Text: "../sub/in.txt"}, "c": {Path: filepath.Join(dir, "sub/in.txt")}}
	if x.steps[0].stdin.Text != outside || !reflect.DeepEqual(x.content.Files, want) {
		t.Errorf("got %+v and %+v", x.steps, x.content.Files)
	}
}

func TestRead_rows(t *testing.T) {
	outside := filetest.Lay(t, map[string]string{"secret": "s", "env.yaml": "type: docker\ndocker: {image: x, extra_mounts: {/: '/host:rw'}}"})
	for name, c := range map[string]struct {
		row  string
		says string // empty if it is allowed
		safe bool   // rejected even with --allow-unsafe
	}{
		"own_command":      {row: `"command": ["x"], "timeout": "1h", "environment": {"image": "x", "workdir": "/app", "env": {"A": "b"}}`},
		"less":             {row: `"limits": {"memory": "1GiB", "pids": 100, "cpus": 1}`},
		"file":             {row: `"files": {"a": "in.txt"}, "setup": "in.txt", "grader": {"command": ["x"], "hidden": {"in.txt": "/in"}}`},
		"link_file":        {row: `"files": {"a": "leak/secret"}`, says: "outside the data's folder", safe: true},
		"link_task":        {row: `"files": {"a": "up/answers.txt"}`, says: "outside the data's folder", safe: true},
		"link_stdin":       {row: `"stdin": "leak/secret"`, says: "outside the data's folder", safe: true},
		"link_setup":       {row: `"setup": "leak/secret"`, says: "outside the data's folder", safe: true},
		"link_steps":       {row: `"steps": [{"command": "x", "stdin": "leak/secret"}]`, says: "outside the data's folder", safe: true},
		"link_hidden":      {row: `"grader": {"command": ["x"], "hidden": {"leak": "/leak"}}`, says: "outside the data's folder", safe: true},
		"hidden":           {row: `"grader": {"command": ["x"], "hidden": {"/etc": "/leak"}}`, says: "outside of the folder of the data", safe: true},
		"image_file":       {row: `"environment": {"image": "docker-archive:image.tar"}`},
		"image_outside":    {row: `"environment": {"image": "docker-archive:/etc/shadow"}`, says: "/etc/shadow is outside the data's folder", safe: true},
		"image_missing":    {row: `"environment": {"image": "docker-archive:/etc/missing"}`, says: "/etc/missing is outside the data's folder", safe: true},
		"image_above":      {row: `"environment": {"image": "oci-archive:../image.tar:tag"}`, says: "outside the data's folder", safe: true},
		"image_link":       {row: `"environment": {"image": "oci:leak/layout"}`, says: "outside the data's folder", safe: true},
		"grader_image":     {row: `"grader": {"command": ["x"], "environment": {"image": "oci:/etc"}}`, says: "grader.environment.image: /etc is outside the data's folder", safe: true},
		"environment":      {row: `"environment": {"file": "env.yaml"}`, says: "environment.file cannot be set by a row"},
		"linked_env":       {row: `"environment": {"file": "leak/env.yaml"}`, says: "environment.file cannot be set by a row", safe: true},
		"compose":          {row: `"environment": {"compose": ["compose.yaml"]}`, says: "environment.compose cannot be set by a row"},
		"dockerfile":       {row: `"environment": {"dockerfile": "Dockerfile"}`, says: "environment.dockerfile cannot be set by a row"},
		"network_host":     {row: `"environment": {"network": "host"}`, says: "environment.network cannot be set by a row"},
		"network_bridge":   {row: `"environment": {"network": "bridge"}`, says: "environment.network cannot be set by a row"},
		"network_none":     {row: `"environment": {"network": "none"}`},
		"shm size":         {row: `"environment": {"shm_size": "1GiB"}`, says: "environment.shm_size cannot be set by a row"},
		"tmpfs":            {row: `"environment": {"tmpfs": ["/x"]}`, says: "environment.tmpfs cannot be set by a row"},
		"seccomp":          {row: `"environment": {"seccomp": "browsers"}`, says: "environment.seccomp cannot be set by a row"},
		"runtime":          {row: `"environment": {"runtime": "runc"}`, says: "environment.runtime cannot be set by a row"},
		"user":             {row: `"environment": {"user": "root"}`, says: "environment.user cannot be set by a row"},
		"step_user":        {row: `"steps": [{"command": "x", "user": "root"}]`, says: "steps[0].user cannot be set by a row"},
		"grader_user":      {row: `"grader": {"command": ["x"], "user": "root"}`, says: "grader.user cannot be set by a row"},
		"grader_file":      {row: `"grader": {"command": ["x"], "environment": {"file": "env.yaml"}}`, says: "grader.environment.file cannot be set by a row"},
		"memory":           {row: `"limits": {"memory": "4GiB"}`, says: "limits.memory is above the limit of the task"},
		"memory_none":      {row: `"limits": {"memory": "none"}`, says: "limits.memory is above the limit of the task"},
		"disk":             {row: `"limits": {"disk": "4GiB"}`, says: "limits.disk is above the limit of the task"},
		"pids":             {row: `"limits": {"pids": 1025}`, says: "limits.pids is above the limit of the task"},
		"cpus":             {row: `"limits": {"cpus": 2}`, says: "limits.cpus is above the limit of the task"},
		"cpus_none":        {row: `"limits": {"cpus": "none"}`, says: "limits.cpus is above the limit of the task"},
		"grader_memory":    {row: `"grader": {"command": ["x"], "limits": {"memory": "none"}}`, says: "grader.limits.memory is above the limit of the task"},
		"timeout":          {row: `"timeout": "none"`, says: "timeout of none cannot be set by a row"},
		"step_timeout":     {row: `"steps": [{"command": "x", "timeout": "none"}]`, says: "steps[0].timeout of none cannot be set by a row"},
		"grader_timeout":   {row: `"grader": {"command": ["x"], "timeout": "none"}`, says: "grader.timeout of none cannot be set by a row"},
		"process_variable": {row: `"stdin": "/proc/self/environ"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filetest.Lay(t, map[string]string{
				"task.yaml":   "{name: t, limits: {memory: 2GiB, cpus: 1.5}, samples_from: data/rows.jsonl}",
				"answers.txt": "42", "data/in.txt": "in", "data/compose.yaml": "services: {a: {image: x}}", "data/Dockerfile": "FROM x",
				"data/env.yaml":   "type: docker\ndocker: {image: x}",
				"data/rows.jsonl": `{"id": "x", ` + c.row + map[bool]string{false: `, "command": ["cat"]`}[strings.Contains(c.row, `"steps"`) || strings.HasPrefix(c.row, `"command"`)] + "}",
			})
			for link, target := range map[string]string{"leak": outside, "up": ".."} {
				if err := os.Symlink(target, filepath.Join(dir, "data", link)); err != nil {
					t.Skip(err) // a system on which links need a privilege
				}
			}
			f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "rows.jsonl:1")) {
				t.Errorf("got %v", err)
			}
			if name == "process_variable" && err == nil && f.Samples[0].steps[0].stdin.Text != "/proc/self/environ" {
				t.Errorf("got %+v", f.Samples[0].steps)
			}
			var log strings.Builder
			_, err = Read(filepath.Join(dir, "task.yaml"), ReadOptions{AllowUnsafe: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if (err != nil) != c.safe || !c.safe && (c.says != "") != strings.Contains(log.String(), "a row of data weakens") {
				t.Errorf("allowed: %v, %s", err, &log)
			}
		})
	}
}

// A row sets no field of an environment that checkData does not know, but those that are safe.
func TestCheckData_fields(t *testing.T) {
	safe := []string{"image", "workdir", "env", "service"} // see origin.images; a service is one of a project, which a row does not name
	typ := reflect.TypeFor[Environment]()
	for i := range typ.NumField() {
		key := typ.Field(i).Tag.Get("yaml")
		if key == "" {
			continue
		}
		var e Environment
		switch v := reflect.ValueOf(&e).Elem().Field(i); v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Int64:
			v.SetInt(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"A": "b"}))
		default:
			t.Fatalf("%s: set it here", key)
		}
		for where, s := range map[string]*Sample{"": {Defaults: Defaults{Environment: &e}}, "grader.": {Defaults: Defaults{Grader: &Grader{Environment: &e}}}} {
			err := s.checkData(&Defaults{})
			if slices.Contains(safe, key) != (err == nil) || err != nil && !strings.Contains(err.Error(), where+"environment."+key) {
				t.Errorf("%senvironment.%s: got %v", where, key, err)
			}
		}
	}
}

// A new key of a row needs a decision: checkData rejects it, or it is safe and added here.
func TestCheckData_keys(t *testing.T) {
	for typ, known := range map[reflect.Type]string{
		reflect.TypeFor[Defaults]():       "environment limits metadata files setup command stdin steps timeout cpu_time expect grader",
		reflect.TypeFor[Sample]():         "id ,inline",
		reflect.TypeFor[Step]():           "name command background service user workdir env stdin timeout cpu_time expect",
		reflect.TypeFor[Grader]():         "environment limits command score on_failure artifacts hidden user workdir env timeout cpu_time max_size max_files",
		reflect.TypeFor[spec.Limits]():    "memory cpus pids disk",
		reflect.TypeFor[score.Artifact](): "path to optional",
	} {
		for i := range typ.NumField() {
			if key := typ.Field(i).Tag.Get("yaml"); key != "" && !slices.Contains(strings.Fields(known), key) {
				t.Errorf("%s.%s: may a row of data set it?", typ.Name(), key)
			}
		}
	}
}

func TestRead_rowEnvironment(t *testing.T) {
	const rows = `{"id": "x", "command": ["cat"], "environment": {"image": "b", "env": {"B": "row"}}, "grader": {"command": ["x"], "environment": {"image": "c"}}}`
	f, _, err := lay(t, map[string]string{
		"task.yaml": "{name: t, environment: {image: a, user: nobody, workdir: /w, runtime: runsc, env: {A: task, B: task}}, samples_from: rows.jsonl}", "rows.jsonl": rows,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := f.Samples[0]
	if got := s.spec; got.Image != "b" || got.User != "nobody" || got.Dir != "/w" || got.Runtime != "runsc" || !maps.Equal(got.Env, map[string]string{"A": "task", "B": "row"}) {
		t.Errorf("got %+v", got)
	}
	if got := s.grader.Spec; got.Image != "c" || got.User != "nobody" || got.Runtime != "runsc" {
		t.Errorf("grader: got %+v", got)
	}
	_, _, err = lay(t, map[string]string{
		"task.yaml": "{name: t, environment: {file: env.yaml}, samples_from: rows.jsonl}", "rows.jsonl": rows,
		"env.yaml": "type: docker\ndocker: {image: a}\nlimits: {memory: 256MiB}",
	})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "that of the task is a file") {
		t.Errorf("got %v", err)
	}
}

// The path of an image is relative to the file that names it.
func TestRead_imageFiles(t *testing.T) {
	row := `{"id": "row", "environment": {"image": "oci:i:v1"}, "grader": {"command": ["x"], "environment": {"image": "oci-archive:g.tar"}}}`
	f, dir := mustLay(t, map[string]string{
		"task.yaml":            "{name: t, command: [a], environment: {image: 'docker-archive:i.tar', user: nobody}, samples_from: data/rows.jsonl, sample_folders: f/*, samples: [{id: task}, {id: spec, environment: {file: env/env.yaml}}]}",
		"data/rows.jsonl":      row + "\n" + `{"id": "of the task", "environment": {"env": {"A": "b"}}}`,
		"f/folder/sample.yaml": "{environment: {image: 'docker-archive:../i.tar'}}", "env/env.yaml": "type: docker\ndocker: {image: 'oci:i'}",
	})
	got := map[string]string{}
	for _, s := range f.Samples {
		got[s.ID] = strings.ReplaceAll(s.spec.Image, dir, "DIR")
		if s.grader != nil {
			got[s.ID+"'s grader"] = strings.ReplaceAll(s.grader.Spec.Image, dir, "DIR")
		}
	}
	if want := map[string]string{
		"task": "docker-archive:DIR/i.tar", "of the task": "docker-archive:DIR/i.tar", "row": "oci:DIR/data/i:v1", "row's grader": "oci-archive:DIR/data/g.tar",
		"folder": "docker-archive:DIR/f/i.tar", "spec": "oci:DIR/env/i",
	}; !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	outside := filetest.Lay(t, map[string]string{"i.tar": "", "env.yaml": ""})
	for name, files := range map[string]map[string]string{
		"task":   {"task.yaml": "{name: t, command: [a], environment: {image: 'oci:" + outside + "'}, samples: [{id: a}]}"},
		"typo":   {"task.yaml": "{name: t, typo: 1, command: [a], environment: {image: 'oci:" + outside + "'}, samples: [{id: a}]}"},
		"sample": {"task.yaml": "{name: t, command: [a], samples: [{id: a, environment: {image: 'docker-archive:" + outside + "/i.tar:x'}}]}"},
		"grader": {"task.yaml": "{name: t, command: [a], grader: {command: [b], environment: {image: 'docker-archive:" + outside + "/i.tar'}}, samples: [{id: a}]}"},
		"spec":   {"task.yaml": "{name: t, command: [a], environment: {file: env.yaml}, samples: [{id: a}]}", "env.yaml": "type: docker\ndocker: {image: 'docker-archive:" + outside + "/i.tar'}"},
	} {
		dir := filetest.Lay(t, files)
		_, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{AllowUnsafe: true})
		if !errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), "is outside the ") || !strings.Contains(err.Error(), "image") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{AllowRead: []string{outside}}); name != "typo" && err != nil {
			t.Errorf("%s, allowed: got %v", name, err)
		}
	}
}

func TestRead_problems(t *testing.T) {
	sample := func(text string) string {
		return "name: t\nsamples:\n  - id: x\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
	}
	if _, _, err := lay(t, map[string]string{"task.yaml": sample("command: [a]\nfiles: {a=b: c}\nmetadata: {d=e: f}")}); err != nil {
		t.Errorf("a path with '=': got %v", err)
	}
	for name, c := range map[string]struct {
		files map[string]string
		says  []string
	}{
		"empty":              {map[string]string{"task.yaml": ""}, []string{"task.yaml:1: wanted a task, found nothing"}},
		"an unknown key":     {map[string]string{"task.yaml": sample("comand: [x]")}, []string{`task.yaml:4: samples[0].comand: wanted a known key, found "comand" (did you mean command?)`}},
		"several":            {map[string]string{"task.yaml": "epochs: 0\nsamples: 3\n"}, []string{"task.yaml:1: epochs: wanted a whole number above 0, found 0", "task.yaml:2: samples: wanted a list, found 3", "task.yaml:1: name: wanted letters"}},
		"no samples":         {map[string]string{"task.yaml": "name: t"}, []string{"it has no samples"}},
		"a null sample":      {map[string]string{"task.yaml": "name: t\nsamples: [null]"}, []string{"task.yaml:2: samples[0]: wanted a mapping, found nothing"}},
		"no command":         {map[string]string{"task.yaml": sample("stdin: x")}, []string{`task.yaml:3: sample "x": it has neither a command nor steps`}},
		"both":               {map[string]string{"task.yaml": sample("command: [a]\nsteps: [{command: [b]}]")}, []string{"a command and steps"}},
		"duplicate id":       {map[string]string{"task.yaml": "name: t\ncommand: [a]\nsamples: [{id: x},\n {id: x}]"}, []string{`task.yaml:4: sample "x": duplicate id, already used at`, "task.yaml:3"}},
		"stdin of steps":     {map[string]string{"task.yaml": sample("stdin: x\nsteps: [{command: [b]}]")}, []string{"stdin goes with a command"}},
		"duplicate step":     {map[string]string{"task.yaml": sample("steps: [{command: [b], name: '2'}, {command: [c]}]")}, []string{`duplicate step name "2"`}},
		"last in background": {map[string]string{"task.yaml": sample("steps: [{command: [b], background: true}]")}, []string{"the last step cannot be in the background"}},
		"background expect":  {map[string]string{"task.yaml": sample("steps: [{command: [b], background: true, expect: {}}, {command: [c]}]")}, []string{"nothing can be expected"}},
		"an empty command":   {map[string]string{"task.yaml": sample("command: []")}, []string{"task.yaml:4: samples[0].command: wanted a program, found nothing"}},
		"a regexp":           {map[string]string{"task.yaml": sample("command: [a]\nexpect: {stdout: {regexp: '('}}")}, []string{`task.yaml:3: sample "x"`, "missing closing )"}},
		"an exit code":       {map[string]string{"task.yaml": sample("command: [a]\nexpect: {exit_code: 256}")}, []string{"wanted an exit code from 0 to 255"}},
		"an outcome":         {map[string]string{"task.yaml": sample("command: [a]\nexpect: {outcome: lost}")}, []string{"wanted exited, signaled, timed-out, cpu-time-exceeded or out-of-memory"}},
		"a tolerance":        {map[string]string{"task.yaml": sample("command: [a]\nexpect: {stdout: {numbers: {text: x, absolute: -1}}}")}, []string{"wanted a number from 0 on, of at most 15 digits, found -1"}},
		"a long tolerance":   {map[string]string{"task.yaml": sample("command: [a]\nexpect: {stdout: {numbers: {text: x, absolute: 9007199254740993}}}")}, []string{"of at most 15 digits, found 9007199254740993"}},
		"a tiny tolerance":   {map[string]string{"task.yaml": sample("command: [a]\nexpect: {stdout: {numbers: {text: x, relative: 1e-400}}}")}, []string{"of at most 15 digits, found 1e-400"}},
		"a JSON key twice":   {map[string]string{"task.yaml": sample("command: [a]\nexpect: {stdout: {json: {a: 1, a: 2}}}")}, []string{`found the key "a" twice`}},
		"a score":            {map[string]string{"task.yaml": sample("command: [a]\ngrader: {command: [g], score: text}")}, []string{"wanted json or exit_code"}},
		"expect and grader":  {map[string]string{"task.yaml": sample("command: [a]\nexpect: {}\ngrader: {command: [g]}")}, []string{"expectations and a grader"}},
		"a grader's network": {map[string]string{"task.yaml": sample("command: [a]\ngrader: {command: [g], environment: {image: i, network: bridge}}")}, []string{"its sandbox has no network"}},
		"a grader's project": {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {compose: c.yaml}\ngrader: {command: [g]}"), "c.yaml": "services: {}"}, []string{"which a grader cannot have"}},
		"hidden, not there":  {map[string]string{"task.yaml": sample("command: [a]\ngrader: {command: [g], hidden: {none: /h}}")}, []string{`hidden path "none" does not exist`}},
		"over the hidden":    {map[string]string{"task.yaml": sample("command: [a]\ngrader: {command: [g], hidden: {task.yaml: /h/task}, artifacts: [{path: x, to: /h}]}")}, []string{`the artifact "x" goes to /h`}},
		"two artifacts":      {map[string]string{"task.yaml": sample("command: [a]\ngrader: {command: [g], artifacts: [a/x, b/x]}")}, []string{`the artifact "b/x" goes to /submission/x, which overlaps`}},
		"the whole":          {map[string]string{"task.yaml": sample("command: [a]\ngrader: {command: [g], artifacts: [/..]}")}, []string{"the whole file system"}},
		"the host's network": {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {image: i, network: host}")}, []string{"network: host: it is this machine's own"}},
		"others' network":    {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {image: i, network: prod_default}")}, []string{"network: prod_default: other containers"}},
		"a spec's network":   {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {file: env.yaml}"), "env.yaml": "{type: docker, docker: {image: i, network: host}}"}, []string{"docker.network: host: it is this machine's own"}},
		"a spec's variables": {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {file: env.yaml}"), "env.yaml": "{type: docker, docker: {image: i}, environment: {include_os_env: true}}"}, []string{"environment.include_os_env"}},
		"two environments":   {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {image: i, dockerfile: d}")}, []string{"more than one of"}},
		"env of a project":   {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {dockerfile: d, user: u}")}, []string{"go with an image"}},
		"no Dockerfile":      {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {dockerfile: d}")}, []string{"no such file"}},
		"an empty folder":    {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {file: sub}"), "sub/README": ""}, []string{"no Compose file, Dockerfile or environment spec in this folder (looked for compose.yaml, "}},
		"a setup":            {map[string]string{"task.yaml": sample("command: [a]\nenvironment: {file: env.yaml}"), "env.yaml": "{type: docker, docker: {image: i}, setup: {commands: [x]}}"}, []string{"has a setup"}},
		"two types":          {map[string]string{"task.yaml": "{name: t, command: [a], samples: [{id: a}, {id: b, environment: {file: env.yaml}}]}", "env.yaml": "{type: local}"}, []string{"a task has one type"}},
		"no data":            {map[string]string{"task.yaml": "{name: t, command: [a], samples_from: none.csv}"}, []string{"none.csv: no such file"}},
		"unknown data":       {map[string]string{"task.yaml": "{name: t, command: [a], samples_from: task.txt}", "task.txt": ""}, []string{`unsupported sample file type ".txt"`}},
		"lines":              {map[string]string{"task.yaml": "{name: t, command: [a], samples_from: r.jsonl}", "r.jsonl": "{\"id\":\"a\"}\n\n{\"id\":1}\n{\n[]\n{\"id\":\"b\"} x\n"}, []string{"r.jsonl:3: id: wanted a text", "r.jsonl:4: wanted a line of JSON", "r.jsonl:5: wanted a mapping, found a list", "r.jsonl:6: wanted a line of JSON"}},
		"deep lines":         {map[string]string{"task.yaml": "{name: t, command: [a], samples_from: r.jsonl}", "r.jsonl": strings.Repeat("[", 1<<20)}, []string{"r.jsonl:1: wanted a line of JSON, found more than 1000 levels"}},
		"rows":               {map[string]string{"task.yaml": "{name: t, command: [a], samples_from: r.csv}", "r.csv": "id,nonsense,expect.exit_code\na,1,x\nb\n"}, []string{"r.csv:2: nonsense: wanted", "r.csv:2: expect.exit_code: wanted an exit code", "r.csv:3: wanted a row"}},
		"rows alike": {
			map[string]string{"task.yaml": "{name: t, command: [a], samples_from: r.jsonl}", "r.jsonl": strings.Repeat("{\"id\":\"a\",\"x\":1,\"timeout\":5}\n", 44)},
			[]string{"r.jsonl:1: x: wanted", "r.jsonl:3: x: wanted", `(did you mean id?); and 41 more like it in line 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, ...`, "r.jsonl:3: timeout: wanted a duration such as 90s or 10m, or none, found 5; and 41 more like it"},
		},
		"files and keys": {
			map[string]string{"task.yaml": "name: t\ncomand: [a]\nfiles: {/a: none.txt}\nenvironment: {compose: c.yaml}\nsamples:\n- {id: a, timeout: 5}\n- {id: b, stdin: {file: in}}\nsamples_from: r.jsonl", "r.jsonl": "{\"id\":1}\n{\"id\":\"c\",\"stdin\":{\"file\":\"in/c\"}}\n"},
			[]string{"task.yaml:2: comand: wanted", `task.yaml:3: file "/a": no such file`, "task.yaml:4: environment: no such file", "task.yaml:6: samples[0].timeout: wanted", `task.yaml:7: sample "b": stdin: `, "r.jsonl:1: id: wanted", `r.jsonl:2: sample "c": stdin: `},
		},
		"columns":         {map[string]string{"task.yaml": "{name: t, command: [a], samples_from: r.csv}", "r.csv": "id,metadata,metadata.a\na,x,0\nb,{},\n"}, []string{"r.csv:2: metadata.a: wanted a value of this column"}},
		"no folders":      {map[string]string{"task.yaml": "{name: t, command: [a], sample_folders: none/*}"}, []string{"no folder matches"}},
		"a folder's name": {map[string]string{"task.yaml": "{name: t, command: [a], sample_folders: f/*}", "f/" + strings.Repeat("n", 201) + "/sample.yaml": "{}"}, []string{"sample.yaml: id: wanted a text of 1 to 200 characters"}},
		"a bare folder":   {map[string]string{"task.yaml": "{name: t, command: [a], sample_folders: f/*}", "f/a/x": ""}, []string{"sample.yaml: no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := lay(t, c.files)
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Fatalf("got %v", err)
			}
			for _, says := range c.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("got %v\nwithout %s", err, says)
				}
			}
		})
	}
}

func TestRead_aliases(t *testing.T) {
	// Reading up to the actual limit takes seconds.
	limit := tier.Pick(t, 10_000, 1_000_000, 1_000_000)
	n := tier.Pick(t, 200, 2000, 2000)
	var opts ReadOptions
	if limit != 1_000_000 {
		opts.maxAliased = limit
	}
	var b strings.Builder
	b.WriteString("name: t\ncommand: [x]\n")
	b.WriteString("samples:\n- id: a\n  steps: &s\n" + strings.Repeat("  - &c {command: [x]}\n", 1) + strings.Repeat("  - *c\n", n))
	for i := range n {
		fmt.Fprintf(&b, "- {id: b%d, steps: *s}\n", i)
	}
	dir := filetest.Lay(t, map[string]string{"task.yaml": b.String()})
	began := time.Now()
	_, err := Read(filepath.Join(dir, "task.yaml"), opts)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at most %d values", limit)) {
		t.Errorf("got %.200v after %v", err, time.Since(began))
	}
}
