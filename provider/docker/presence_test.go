package docker

import (
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/sweep"
)

func TestWhatGoesWithoutBeingAskedFor(t *testing.T) {
	now := time.Now()
	made := func(ago time.Duration) *engine.Object { return &engine.Object{Created: now.Add(-ago)} }
	for name, c := range map[string]struct {
		m    marked
		want bool
	}{
		"a sandbox":                     {marked{sweep.Object{}, made(2 * grace)}, true},
		"one that was just made":        {marked{sweep.Object{}, made(grace / 2)}, false},
		"a sandbox's folder":            {marked{sweep.Object{}, nil}, true},
		"a kept one":                    {marked{sweep.Object{Kept: true}, made(2 * grace)}, false},
		"a kept one whose time is over": {marked{sweep.Object{Kept: true, Expires: now.Add(-time.Hour)}, made(2 * grace)}, false},
		"a cache":                       {marked{sweep.Object{Cache: true}, made(2 * grace)}, false},
		"an old cache":                  {marked{sweep.Object{Cache: true, Old: true}, made(2 * grace)}, false},
		"a cache that is unfinished":    {marked{sweep.Object{Cache: true, Unfinished: true}, made(2 * grace)}, true},
		"one that may be under way":     {marked{sweep.Object{Cache: true, Unfinished: true}, made(grace / 2)}, false},
	} {
		if got := isSwept(c.m, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
