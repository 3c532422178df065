package taskfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestRead_contentForms(t *testing.T) {
	t.Parallel()
	const missing = "no such file: "
	for value, want := range map[string]string{ // the text, or the error in <>
		"answer": "answer", `"3.5"`: "3.5", "v1.2.3": "v1.2.3", "two words.txt": "two words.txt", "echo hi >/tmp/x": "echo hi >/tmp/x", `"a/b\n"`: "a/b\n",
		"f(x)": "f(x)", "end.": "end.", "{text: a/b.txt}": "a/b.txt", `{text: ""}`: "", "{text: in.txt}": "in.txt", "{text: folder}": "folder",
		"typo.txt": "<" + missing + "typo.txt", "data/typo": "<" + missing + "data/typo", "./typo": "<" + missing + "./typo", "a.tar.gz": "<" + missing + "a.tar.gz",
		"in.txt": "file", "{file: in.txt}": "file", "plain": "file", "{file: plain}": "file", "'data:,a/b.txt'": "data",
		"{file: typo}": "<no such file", "folder": "<folder is a folder", "folder/": "<folder/ is a folder",
		"{text: a, file: b}": "<found both", "{}": "<found neither", "{txt: a}": "<did you mean text?", "[a]": "<wanted text, {text: TEXT} or {file: PATH}", "1": "<wanted text, ",
	} {
		for _, key := range []string{"files: {x: %s}", "stdin: %s", "setup: %s"} {
			f, dir, err := lay(t, map[string]string{
				"task.yaml": "name: t\ncommand: [a]\nsamples:\n- id: x\n  metadata: {}\n  " + fmt.Sprintf(key, value) + "\n", "in.txt": "", "plain": "", "folder/x": "",
			})
			if fails, ok := strings.CutPrefix(want, "<"); ok {
				if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), fails) || !strings.Contains(err.Error(), "task.yaml:6: ") {
					t.Errorf("%s: got %v", fmt.Sprintf(key, value), err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", fmt.Sprintf(key, value), err)
				continue
			}
			s := f.Samples[0]
			got := map[byte]task.Content{'f': s.content.Files["x"], 's': s.steps[0].stdin}[key[0]]
			if strings.HasPrefix(key, "setup") {
				got = s.content.Setup
			}
			expected := task.Content{Text: want}
			switch want {
			case "file":
				name := strings.TrimSuffix(strings.TrimPrefix(value, "{file: "), "}")
				expected = task.Content{Path: filepath.Join(dir, name)}
			case "data":
				expected = task.Content{Data: strings.Trim(value, "'")}
			}
			if got != expected {
				t.Errorf("%s: got %+v, want %+v", fmt.Sprintf(key, value), got, expected)
			}
		}
	}
}

// An explicit empty input replaces that of the task.
func TestRead_emptyStdin(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{"task.yaml": "{name: t, command: [a], stdin: x, samples: [{id: a, stdin: {text: ''}}, {id: b, stdin: ''}]}"})
	if a, b := f.Samples[0].steps[0].stdin, f.Samples[1].steps[0].stdin; a.Text != "" || b.Text != "x" {
		t.Errorf("got %+v and %+v", a, b)
	}
}

// Rows may be from third parties: only explicit forms of theirs are errors.
func TestRead_rowContentForms(t *testing.T) {
	t.Parallel()
	task := map[string]string{"task.yaml": "{name: t, command: [a], samples_from: [rows.jsonl, rows.csv]}"}
	task["rows.jsonl"] = `{"id": "a", "stdin": "no/such.txt", "files": {"x": {"text": "rows.csv"}}}` + "\n"
	task["rows.csv"] = "id,stdin.text,stdin.file,files.a.b\nb,rows.csv,,c.d\nc,,rows.csv,\n"
	f, dir := mustLay(t, task)
	a, b, c := f.Samples[0], f.Samples[1], f.Samples[2]
	if a.steps[0].stdin.Text != "no/such.txt" || a.content.Files["x"].Text != "rows.csv" || b.steps[0].stdin.Text != "rows.csv" || b.content.Files["a.b"].Text != "c.d" ||
		c.steps[0].stdin.Path != filepath.Join(dir, "rows.csv") {
		t.Errorf("got %+v, %+v, %+v", a, b, c)
	}
	task["rows.jsonl"] = `{"id": "a", "stdin": {"file": "none"}}` + "\n" + `{"id": "d", "stdin": {"file": "../task.yaml"}}` + "\n"
	_, _, err := lay(t, task)
	for _, says := range []string{`rows.jsonl:1: sample "a": stdin: `, `rows.jsonl:2: sample "d": stdin: "../task.yaml" is outside`} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v\nwithout %s", err, says)
		}
	}
}

// The decoder would replace them by U+FFFD.
func TestRead_rowNotUTF8(t *testing.T) {
	t.Parallel()
	task := map[string]string{"task.yaml": "{name: t, command: [a], samples_from: [rows.jsonl]}"}
	for row, says := range map[string]string{`{"id": "a", "stdin": "x\ud800"}`: `surrogate`, "{\"id\": \"a\", \"stdin\": \"x\xff\"}": "UTF-8"} {
		task["rows.jsonl"] = row + "\n"
		if _, _, err := lay(t, task); err == nil || !strings.Contains(err.Error(), "rows.jsonl:1") || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", row, err)
		}
	}
}

func TestRead_missingAssets(t *testing.T) {
	t.Parallel()
	dir := filetest.Lay(t, map[string]string{
		"task.yaml": `name: t
files:
  a: common/one.txt
  b: common/two.txt
setup: set-up.sh
samples_from: none.jsonl
sample_folders: folders/*
samples:
- id: compose
  command: [a]
  environment:
    compose: [compose.yaml, override.yaml]
- id: steps
  files: {c: own.txt}
  steps:
  - command: [a]
    stdin: in/1.txt
  - command: [a]
    stdin: in/2.txt
  grader:
    command: [g]
    hidden:
      tests: /tests
      more: /more
- id: built
  command: [a]
  environment: {file: env/env.yaml}
- id: plain
  command: [a]
  environment: {dockerfile: Dockerfile}
`,
		"folders/one/sample.yaml": "command: [a]\nstdin: in.txt\n", "env/env.yaml": "{type: docker, name: x, docker: {build: {dockerfile: My.Dockerfile}}}",
	})
	_, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
	if !errors.Is(err, fumehood.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for line := range strings.Lines(err.Error()) {
		got = append(got, strings.TrimSpace(strings.NewReplacer(dir+string(filepath.Separator), "", "openat ", "statat ").Replace(line)))
	}
	const hint = " (if it is the content itself, write {text: ...})"
	want := []string{
		"task.yaml:6: read samples none.jsonl: no such file or directory",
		`task.yaml:3: file "a": no such file: common/one.txt` + hint,
		`task.yaml:4: file "b": no such file: common/two.txt` + hint,
		"task.yaml:5: setup: no such file: set-up.sh" + hint,
		`task.yaml:12: sample "compose": environment: no such file: compose.yaml`,
		`task.yaml:12: sample "compose": environment: no such file: override.yaml`,
		`task.yaml:14: sample "steps": file "c": no such file: own.txt` + hint,
		`task.yaml:17: sample "steps": step "1": stdin: no such file: in/1.txt` + hint,
		`task.yaml:19: sample "steps": step "2": stdin: no such file: in/2.txt` + hint,
		`task.yaml:22: sample "steps": grader: hidden path "more" does not exist: more`,
		`task.yaml:22: sample "steps": grader: hidden path "tests" does not exist: tests`,
		`task.yaml:27: sample "built": environment: read env/My.Dockerfile: statat My.Dockerfile: no such file or directory`,
		`task.yaml:30: sample "plain": environment: no such file: Dockerfile`,
		`folders/one/sample.yaml:2: sample "one": stdin: no such file: in.txt` + hint,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Problems of all files are reported, and samples of the files without problems are checked.
func TestRead_problemsOfAllFiles(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"task.yaml": "{name: t, command: [a], samples_from: [a.jsonl, b.jsonl], sample_folders: f/*, samples: [{id: x, stdin: no/file}]}",
		"a.jsonl":   `{"id": 1}`, "b.jsonl": `{"nonsense": 1}`, "f/one/sample.yaml": "comand: [x]", "f/two/sample.yaml": "{stdin: typo.txt}",
	}
	says := []string{"a.jsonl:1: id: wanted", "b.jsonl:1: nonsense: wanted", "one/sample.yaml:1: comand: wanted", `task.yaml:1: sample "x": stdin: no such file`, `sample.yaml:1: sample "two": stdin: no such file`}
	_, _, err := lay(t, files)
	for _, says := range says {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v\nwithout %s", err, says)
		}
	}
	files["task.yaml"] = strings.Replace(files["task.yaml"], "{name", "{nam: x, name", 1)
	_, _, err = lay(t, files)
	for _, says := range append(says[:3:3], "task.yaml:1: nam: wanted") {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v\nwithout %s", err, says)
		}
	}
}

func TestRead_problemsOfSample(t *testing.T) {
	t.Parallel()
	_, _, err := lay(t, map[string]string{"task.yaml": `
name: t
samples:
- id: x
  environment: {image: i, network: host}
  steps: [{name: a, command: [x]}, {name: a, command: [x], background: true}]
  grader: {command: [g], hidden: {none: /h}}
- id: x
`})
	for _, says := range []string{"network: host", `duplicate step name "a"`, "the last step cannot be in the background", `hidden path "none"`, "neither a command nor steps", "duplicate id"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v\nwithout %s", err, says)
		}
	}
}

func TestRead_localHidden(t *testing.T) {
	t.Parallel()
	_, _, err := lay(t, map[string]string{
		"task.yaml": "{name: t, environment: {file: env.yaml}, command: [a], grader: {command: [g], hidden: {key: /key}}, samples: [{id: a}, {id: b}]}", "env.yaml": "type: local", "key": "",
	})
	if !errors.Is(err, fumehood.ErrConfig) || strings.Count(err.Error(), "hidden files need a sandbox with its own files") != 1 {
		t.Errorf("got %v", err)
	}
}
