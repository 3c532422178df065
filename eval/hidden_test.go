package eval

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fumehood/fumehood/internal/taskfile"
)

// Results of earlier runs reveal answers, so no image may contain them.
func TestHiddenRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	for name, text := range map[string]string{
		"tasks/task.yaml": "{name: t, command: [a], samples: [{id: x}]}", "tasks/old/run.json": "{}", "tasks/old/task.yaml": "", "tasks/old/results.jsonl": "",
		"tasks/data/in": "", "before/run.json": "{}", "before/results.jsonl": "",
	} {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := taskfile.Read(in("tasks/task.yaml"), taskfile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, run string
		want     []string
	}{
		{in("runs"), in("runs/new"), []string{in("tasks/old"), in("runs"), in("runs/new")}},
		{in("tasks/runs"), in("tasks/runs/new"), []string{in("tasks/old"), in("tasks/runs"), in("tasks/runs/new")}},
		{dir, in("new"), []string{in("before"), in("tasks/old"), in("new")}}, // the task is inside it
	} {
		if got, err := hiddenRuns(f, c.dir, c.run); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("of %s: got %q, %v, want %q", c.run, got, err, c.want)
		}
	}
}
