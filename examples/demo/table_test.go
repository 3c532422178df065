package main

import "testing"

func TestEscape(t *testing.T) {
	for name, c := range map[string]struct {
		in    string
		width int
		want  string
	}{
		"plain text stays as it is":        {`it's "42"`, 20, `it's "42"`},
		"orders for the terminal":          {"\x1b[2Jok\a", 20, `\x1b[2Jok\a`},
		"bytes that are no text":           {"\xff\x00", 20, `\xff\x00`},
		"a carriage return hides nothing":  {"bad\rgood", 20, `bad\rgood`},
		"what turns the reading direction": {"a\u202eb", 20, `a\u202eb`},
		"wide characters":                  {"日", 20, `\u65e5`},
		"what is too long is cut":          {"0123456789", 8, "01234..."},
		"what just fits is not":            {"01234567", 8, "01234567"},
		"no room at all":                   {"0123", 0, "..."},
	} {
		if got := escape(c.in, c.width); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", name, c.in, got, c.want)
		}
	}
}
