package runs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

func TestRun_Drop(t *testing.T) {
	t.Parallel()
	r := create(t)
	appendAll(t, r, scored("a", 1, 1), failedWith("b", task.Infra), scored("c", 1, 0))
	done := r.Done()
	n, err := r.Drop(func(res *task.SampleResult) bool { return res.Error != nil })
	if err != nil || n != 1 || done(task.Key{Sample: "b", Epoch: 1}) || !done(task.Key{Sample: "c", Epoch: 1}) {
		t.Errorf("dropped %d: %v", n, err)
	}
	appendAll(t, r, scored("b", 1, 1))
	if got, want := recorded(t, r.Folder), []string{"a/1", "c/1", "b/1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Drop(func(*task.SampleResult) bool { return true }); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestRead_tamperedGrader(t *testing.T) {
	t.Parallel()
	r := create(t)
	const text = `{"sample":"a","epoch":1,"score":{"value":1},"started":"2026-01-02T03:04:05Z","grader":{"name":"grader","outcome":"exited\nforged"}}` + "\n"
	if err := os.WriteFile(filepath.Join(r.Dir(), resultsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Summary(); err == nil || !strings.Contains(err.Error(), "unknown outcome") {
		t.Errorf("got %v", err)
	}
}
