package cli

import (
	"strings"
	"testing"
)

func TestHelp_signal(t *testing.T) {
	text := help(t, true)["fumehood process signal"]
	about, _, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(about) {
		if len(strings.Fields(line)) < 3 {
			t.Errorf("a line has fewer than three words:\n%s", about)
			break
		}
	}
}
