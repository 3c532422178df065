package strict

import "testing"

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"setup", "setup", 0},
		{"setpu", "setup", 2},
		{"netwrk", "network", 1},
		{"mod", "mode", 1},
		{"kitten", "sitting", 3},
		{"flaw", "lawn", 2},
		{"ü", "u", 2},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
