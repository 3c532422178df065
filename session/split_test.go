package session

import (
	"testing"
)

func TestSplitter(t *testing.T) {
	const marker = "aab\n"
	for _, c := range []struct{ stream, setup, command string }{
		{"", "", ""},
		{"setup only", "setup only", ""},
		{"setup only aa", "setup only aa", ""},
		{marker, "", ""},
		{"x" + marker + "y", "x", "y"},
		{"aaab\ny", "a", "y"},
		{"x" + marker + "y" + marker, "x", "y" + marker},
		{"x" + marker + "aa", "x", "aa"},
		{"aaaab\naab\n", "aa", ""},
		{"x" + marker + marker + "y", "x", "y"},
		{"x" + marker + marker + marker, "x", marker},
	} {
		for size := 1; size <= len(c.stream)+1; size++ {
			s := splitter{marker: []byte(marker)}
			var setup, command []byte
			for rest := []byte(c.stream); len(rest) > 0; {
				n := min(size, len(rest))
				a, b := s.take(rest[:n])
				setup, command, rest = append(setup, a...), append(command, b...), rest[n:]
			}
			a, b := s.rest()
			setup, command = append(setup, a...), append(command, b...)
			if string(setup) != c.setup || string(command) != c.command {
				t.Errorf("%q in pieces of %d: %q and %q, want %q and %q", c.stream, size, setup, command, c.setup, c.command)
			}
		}
	}
}
