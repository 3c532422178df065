package wire

import (
	"testing"
	"time"
)

func TestRestart_Again(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r    Restart
		code int
		want bool
	}{
		"never":           {Restart{}, 1, false},
		"always":          {Restart{Always: true, Done: 100}, 0, true},
		"after failures":  {Restart{Failed: true}, 1, true},
		"after a success": {Restart{Failed: true}, 0, false},
		"once more":       {Restart{Failed: true, Most: 2, Done: 1}, 1, true},
		"not more than 2": {Restart{Failed: true, Most: 2, Done: 2}, 1, false},
	} {
		if got := c.r.Again(c.code); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRestartPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ran, last, want time.Duration }{
		{0, 0, 100 * time.Millisecond},
		{time.Second, 100 * time.Millisecond, 200 * time.Millisecond},
		{time.Second, 50 * time.Second, time.Minute},
		{10 * time.Second, time.Minute, 100 * time.Millisecond},
	} {
		if got := RestartPause(c.ran, c.last); got != c.want {
			t.Errorf("ran %v, last pause %v: %v", c.ran, c.last, got)
		}
	}
}
