package cli

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"a\tb\nä 世 ✓":                 "a\tb\nä 世 ✓",
		"\x1b[31mred\x1b[0m":          `\x1b[31mred\x1b[0m`,
		"\x1b]0;title\a":              `\x1b]0;title\x07`,
		"a\rb\x00\x7f":                `a\x0db\x00\x7f`,
		"\u009b31m":                   `\u009b31m`,
		"\x9b31m":                     `\x9b31m`,
		"\xff\xe4\xb8":                `\xff\xe4\xb8`,
		"a\u202eb\u2066c\u2069\ufffd": `a\u202eb\u2066c\u2069` + "\ufffd",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		for size := range len(text) + 1 {
			var b strings.Builder
			w := &plainWriter{w: &b}
			for rest := text; len(rest) > 0; {
				n := min(max(size, 1), len(rest))
				if _, err := w.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := w.Close(); err != nil || b.String() != want {
				t.Errorf("%q in pieces of %d: got %q, %v, want %q", text, size, b.String(), err, want)
			}
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b[31m\x9b\u202e", 3)
	f.Fuzz(func(t *testing.T, text string, at int) {
		got := plain(text)
		if strings.ContainsFunc(got, isOrder) {
			t.Errorf("%q became %q", text, got)
		}
		var b strings.Builder
		w := &plainWriter{w: &b}
		at = max(0, min(at, len(text)))
		for _, part := range []string{text[:at], text[at:]} {
			if _, err := w.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil || b.String() != got {
			t.Errorf("%q in two pieces became %q, want %q", text, b.String(), got)
		}
	})
}
