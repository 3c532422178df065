package archive

import (
	"archive/tar"
	"slices"
	"strings"
	"testing"
)

// A list comes from the sandbox.
func TestReadSkipped_hostile(t *testing.T) {
	for record, want := range map[string]struct {
		files []SkippedFile
		count int
	}{
		"":                          {},
		"x":                         {},
		"-1\x00pipe a":              {},
		"0\x00pipe a":               {},
		"99999999999999999999":      {},
		"7":                         {nil, 7},
		"1\x00pipe a\x00pipe b":     {[]SkippedFile{{"a", "pipe"}}, 1},
		"2\x00pipe\x00socket ../ b": {[]SkippedFile{{"../ b", "socket"}}, 2},
	} {
		files, count := ReadSkipped(&tar.Header{PAXRecords: map[string]string{SkippedRecord: record}})
		if !slices.Equal(files, want.files) || count != want.count {
			t.Errorf("%q: %v of %d", record, files, count)
		}
	}
	many := "1000000" + strings.Repeat("\x00a b", 1_000_000)
	if files, count := ReadSkipped(&tar.Header{PAXRecords: map[string]string{SkippedRecord: many}}); len(files) > maxSkippedFiles || count != 1_000_000 {
		t.Errorf("%d of %d", len(files), count)
	}
}
