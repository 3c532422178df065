package runs

import (
	"errors"
	"math"
	"testing"

	"github.com/fumehood/fumehood"
)

// TestAttempts_atLeastOne compares the estimate with 1 - C(n-c, k) / C(n, k).
func TestAttempts_atLeastOne(t *testing.T) {
	choose := func(n, k int) float64 {
		c := 1.0
		for i := range k {
			c *= float64(n-i) / float64(i+1)
		}
		return c
	}
	for n := 1; n <= 12; n++ {
		for passed := 0; passed <= n; passed++ {
			for k := 1; k <= n; k++ {
				a := attempts{n, passed}
				if got, want := a.atLeastOne(k), 1-choose(n-passed, k)/choose(n, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("n %d, c %d, k %d: got %v, want %v", n, passed, k, got, want)
				}
			}
		}
	}
}

func TestFolder_Summarize(t *testing.T) {
	r := create(t)
	appendAll(t, r, mixed()...)
	s, err := r.Summarize(SummaryOptions{PassAt: []int{1, 2, 3}, By: "outcome"})
	if err != nil || len(s.PassAt) != 3 || len(s.Groups) != 4 {
		t.Fatalf("%+v, %v", s, err)
	}
	// "a,b" has two attempts of which one passes, two samples have one that fails, and one has no score.
	for i, want := range []PassAt{{1, new(0.5 / 3), 3}, {2, new(1.0), 1}, {3, nil, 0}} {
		got := s.PassAt[i]
		if got.K != want.K || got.Samples != want.Samples || (got.Value == nil) != (want.Value == nil) || got.Value != nil && math.Abs(*got.Value-*want.Value) > 1e-12 {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	recorded := map[string]int{}
	for _, g := range s.Groups {
		recorded[g.Value] = g.Recorded
	}
	if recorded["exited"] != 1 || recorded["timed-out"] != 1 || recorded["signaled"] != 1 || recorded["none"] != 2 {
		t.Errorf("got %v", recorded)
	}
	for _, o := range []SummaryOptions{{By: "typo"}, {By: "metadata."}, {PassAt: []int{0}}, {PassAt: make([]int, maxPassAt+1)}} {
		if _, err := r.Summarize(o); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
