package taskfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
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
