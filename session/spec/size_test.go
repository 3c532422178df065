package spec

import (
	"testing"

	"github.com/fumehood/fumehood"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"512m": 512 << 20, "512MiB": 512 << 20, "2g": 2 << 30, "2GB": 2 << 30, "0.5gb": 512 << 20, "1024": 1024, "1 GiB": 1 << 30, "none": fumehood.NoLimit,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "12x", "-1", "-1g", "0", "1 2", "NaN", "1e99g", "1e9", "0x1p4"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}
