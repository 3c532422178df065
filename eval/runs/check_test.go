package runs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestRead_tampered(t *testing.T) {
	t.Parallel()
	const good = `{"sample":"a","epoch":1,"tries":1,"score":{"value":1},"started":"2026-01-02T03:04:05Z"`
	for name, c := range map[string]struct{ line, says string }{
		"outcome":    {good + `,"steps":[{"name":"1","outcome":"exited\nforged"}]}`, "unknown outcome"},
		"sandbox":    {good + `,"sandbox":"a\u001b[2J"}`, "invalid sandbox name"},
		"score":      {strings.Replace(good, `"value":1`, `"value":5`, 1) + "}", "invalid score 5"},
		"negative":   {strings.Replace(good, `"value":1`, `"value":-1`, 1) + "}", "invalid score -1"},
		"part":       {strings.Replace(good, `"value":1`, `"value":1,"parts":{"a":1e9}`, 1) + "}", "invalid score 1e+09"},
		"phase":      {good + `,"phases":{"\u001b[2J":1}}`, "unknown phase"},
		"class":      {strings.Replace(good, `"score":{"value":1}`, `"error":{"class":"x\ny","phase":"solve","text":""}`, 1) + "}", "invalid failure"},
		"values":     {good + `,"steps":[` + strings.Repeat(`"",`, maxValues) + `""]}`, "more than 1000000 values"},
		"levels":     {good + `,"unknown":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}", "more than 100 levels"},
		"phase_text": {strings.Replace(good, `"score":{"value":1}`, `"error":{"class":"infrastructure","phase":"x\ny","text":""}`, 1) + "}", "invalid failure"},
	} {
		t.Run(name, func(t *testing.T) {
			r := create(t)
			text := c.line + "\n" + good + "}\n"
			if err := os.WriteFile(filepath.Join(r.Dir(), resultsFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Summary(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "line 1: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("long", func(t *testing.T) {
		r := create(t)
		f, err := os.OpenFile(filepath.Join(r.Dir(), resultsFile), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(maxLine + 1<<20); err != nil { // a line of NUL bytes without an end
			t.Fatal(err)
		}
		if _, err := r.Summary(); err == nil || !strings.Contains(err.Error(), "a line has more than") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("about", func(t *testing.T) {
		for text, says := range map[string]string{
			`{"task": "a\u001b[2J"}`: "invalid task name", `{"task": "a\u202eb"}`: "invalid task name",
			`{"task": "a", "attempts": 1000000000000000000}`: "invalid number of attempts", `{"task": "a", "attempts": -1}`: "invalid number of attempts",
			`{"task": "a", "Task": "b"}`: `duplicate key "Task"`,
		} {
			r := create(t)
			if err := os.WriteFile(filepath.Join(r.Dir(), aboutFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(r.Dir()); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: got %v", text, err)
			}
		}
	})
}
