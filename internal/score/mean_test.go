package score

import (
	"math"
	"slices"
	"testing"
)

func TestMean(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   float64
	}{
		"none":        {nil, 0},
		"one":         {[]float64{0.7}, 0.7},
		"tenths":      {[]float64{0.1, 0.2, 0.3}, 0.2},
		"many tenths": {slices.Repeat([]float64{0.1}, 1000), 0.1},
		"all 1":       {slices.Repeat([]float64{1}, 3), 1},
		"nearly 1":    {append(slices.Repeat([]float64{1}, 10_000), math.Nextafter(1, 0)), math.Nextafter(1, 0)},
		"tiny":        {[]float64{math.SmallestNonzeroFloat64, 1, 0}, 1. / 3},
	} {
		t.Run(name, func(t *testing.T) {
			var forwards, backwards Mean
			for _, v := range c.values {
				forwards.Add(v)
			}
			slices.Reverse(c.values)
			for _, v := range c.values {
				backwards.Add(v)
			}
			if forwards.Value() != c.want || backwards.Value() != c.want {
				t.Errorf("got %v and %v, want %v", forwards.Value(), backwards.Value(), c.want)
			}
		})
	}
}
