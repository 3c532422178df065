package docker

import (
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/owner/sweep"
)

func TestIsSwept(t *testing.T) {
	now := time.Now()
	made := func(ago time.Duration, o sweep.Object) sweep.Object {
		o.Created = now.Add(-ago)
		return o
	}
	for name, c := range map[string]struct {
		o    sweep.Object
		want bool
	}{
		"a sandbox":                     {made(2*grace, sweep.Object{}), true},
		"one that was just made":        {made(grace/2, sweep.Object{}), false},
		"a sandbox's folder":            {sweep.Object{Kind: "folder"}, true},
		"a kept one":                    {made(2*grace, sweep.Object{Kept: true}), false},
		"a kept one whose time is over": {made(2*grace, sweep.Object{Kept: true, Expires: now.Add(-time.Hour)}), false},
		"a cache":                       {made(2*grace, sweep.Object{Cache: true}), false},
		"an old cache":                  {made(2*grace, sweep.Object{Cache: true, Expires: now.Add(-time.Hour)}), false},
		"a cache that is unfinished":    {made(2*grace, sweep.Object{Cache: true, Unfinished: true}), true},
		"one that may be under way":     {made(grace/2, sweep.Object{Cache: true, Unfinished: true}), false},
	} {
		if got := isSwept(c.o, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
