package taskfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/strict"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestRead_size(t *testing.T) {
	entries := ""
	for i := range 1000 {
		entries += fmt.Sprintf("k%d: v, ", i)
	}
	many := func(keys string) string {
		text := "samples:\n"
		for i := range 2000 {
			text += fmt.Sprintf("  - {id: s%d, command: cat%s}\n", i, keys)
		}
		return text
	}
	for name, c := range map[string]struct{ task, says string }{
		"metadata by an alias":     {"samples:\n  - {id: first, command: cat, metadata: &m {" + entries + "}}\n" + strings.TrimPrefix(many(", metadata: *m"), "samples:\n"), "at most 1000000 values below aliases"},
		"metadata of the defaults": {"metadata: {" + entries + "}\n" + many(""), "2000 samples with 1000 files, metadata and steps of the defaults each are too many"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := lay(t, map[string]string{"task.yaml": "name: t\n" + c.task})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %.300v", err)
			}
		})
	}
}

// Files of samples, which may come from third parties, take bounded time and memory.
func TestRead_dataSize(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says string }{
		"a document":  {"rows.json", `[{"id": "` + strings.Repeat("a", 16<<20) + `"}]`, "rows.json: wanted at most 16MiB, found more (a file with one sample in each line, NAME.jsonl, may be larger)"},
		"YAML":        {"rows.yaml", "- id: a #" + strings.Repeat("a", 16<<20), "rows.yaml: wanted at most 16MiB, found more"},
		"a long line": {"rows.jsonl", `{"id": "a"}` + "\n" + `{"id": "` + strings.Repeat("a", 16<<20) + `"}`, "rows.jsonl:2: wanted a line of at most 16MiB, found more"},
		"wrong lines": {"rows.jsonl", strings.Repeat("[\n", 10_000_000), "rows.jsonl: the rest was not read"},
		"wrong rows":  {"rows.jsonl", strings.Repeat("[]\n", 10_000_000), "rows.jsonl: the rest was not read"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := lay(t, map[string]string{"task.yaml": "{name: t, command: cat, samples_from: " + c.file + "}", c.file: c.text})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %.500v", err)
			}
		})
	}
}

// A file has a maximum number of samples. Samples beyond it are not read, whatever they are.
func TestRead_manyRows(t *testing.T) {
	for name, text := range map[string]string{
		"rows.jsonl": `{"id": "a"}` + "\n" + `{"id": "b"}` + "\n{\"unknown\": 1}\n", "rows.csv": "id,epochs\na,1\nb,1\nc,none\n", "rows.yaml": "- id: a\n- id: b\n- {id: [c]}\n",
	} {
		dir := filetest.Lay(t, map[string]string{"task.yaml": "name: t\ncommand: [x]\nsamples_from: " + name + "\n", name: text})
		_, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{maxRows: 2})
		if !errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), "at most 2 samples") || strings.Contains(err.Error(), ":3: id") || strings.Contains(err.Error(), "unknown") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{}); err == nil || strings.Contains(err.Error(), "at most 2 samples") {
			t.Errorf("%s without this limit: got %v", name, err)
		}
	}
}

// Rows are read one by one.
func TestRowsOfJSON_stop(t *testing.T) {
	d := &strict.Decoder{File: "rows.jsonl", Forms: forms, Types: types}
	read := 0
	for range rowsOfJSON(d, []byte(strings.Repeat("{}\n", 10)+"{")) {
		if read++; read == 3 {
			break
		}
	}
	if read != 3 || d.Err() != nil {
		t.Errorf("%d rows, %v", read, d.Err())
	}
}
