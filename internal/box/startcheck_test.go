package box

import (
	"math"
	"testing"
	"time"
)

// The health check of an image or project determines how long a start may take, up to a limit.
func TestCheck_Limit(t *testing.T) {
	t.Parallel()
	const most, longest = 600 * time.Second, time.Duration(math.MaxInt64)
	for name, c := range map[string]struct {
		check Check
		want  time.Duration
	}{
		"usual":        {Check{time.Second, 2 * time.Second, 3 * time.Second, 4}, 31 * time.Second},
		"short":        {Check{0, time.Millisecond, time.Millisecond, 1}, 2*time.Second + 4*time.Millisecond},
		"long start":   {Check{1000 * time.Hour, time.Second, time.Second, 1}, most},
		"many retries": {Check{0, time.Second, time.Second, math.MaxInt}, most},
		"long pauses":  {Check{0, longest, longest, 3}, most},
		"all of it":    {Check{longest, longest, longest, math.MaxInt}, most},
	} {
		if got := c.check.Limit(most); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
