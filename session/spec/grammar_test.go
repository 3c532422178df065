package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fumehood/fumehood/session/spec"
)

// Sizes and durations of the command line have the same texts as those of the Python client, whose tests read the file too.
func TestGrammar(t *testing.T) {
	t.Parallel()
	var cases struct {
		Sizes          map[string]int64         `json:"sizes"`
		Durations      map[string]time.Duration `json:"durations"`
		WrongSizes     []string                 `json:"wrong_sizes"`
		WrongDurations []string                 `json:"wrong_durations"`
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "clients", "python", "tests", "grammar.json"))
	if err == nil {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil || len(cases.Sizes) == 0 || len(cases.Durations) == 0 {
		t.Fatalf("%d sizes, %d durations: %v", len(cases.Sizes), len(cases.Durations), err)
	}
	for text, want := range cases.Sizes {
		if got, err := spec.ParseSize(text); got != want || err != nil {
			t.Errorf("size %q: %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range cases.Durations {
		if got, err := time.ParseDuration(text); got != want || err != nil {
			t.Errorf("duration %q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range cases.WrongSizes {
		if got, err := spec.ParseSize(text); err == nil {
			t.Errorf("size %q: %d, want an error", text, got)
		}
	}
	for _, text := range cases.WrongDurations {
		if got, err := time.ParseDuration(text); err == nil {
			t.Errorf("duration %q: %v, want an error", text, got)
		}
	}
}
