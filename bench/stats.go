package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// percentile returns the smallest sample that at least p percent of the samples do not exceed (nearest rank), so it
// is always a measured time. With fewer than 100 samples, p99 is the longest one. Without samples it is 0.
func percentile(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the middle sample, or the mean of the two middle ones. Without samples it is 0.
func median(samples []time.Duration) time.Duration {
	n := len(samples)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio returns the median of a divided by the median of b; NaN if either has no samples.
func ratio(a, b []time.Duration) float64 {
	if len(a) == 0 || len(b) == 0 {
		return math.NaN()
	}
	return float64(median(a)) / float64(median(b))
}

// resamples is the number of random draws in ratioRange.
const resamples = 2000

// ratioRange returns the 95 % range of the ratio, by a bootstrap with a fixed seed. a and b must be in the order of
// measurement, so that a[i] and b[i] were measured close together. They are drawn in pairs, so that a load on the
// machine that affected both does not widen the range. The result is NaN without samples.
func ratioRange(a, b []time.Duration) (low, high float64) {
	n := min(len(a), len(b)) // they differ if a run was interrupted
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	ratios := make([]float64, resamples)
	drawnA, drawnB := make([]time.Duration, n), make([]time.Duration, n)
	for i := range ratios {
		for j := range n {
			k := rnd.IntN(n)
			drawnA[j], drawnB[j] = a[k], b[k]
		}
		ratios[i] = ratio(drawnA, drawnB)
	}
	slices.Sort(ratios)
	return ratios[resamples*25/1000], ratios[resamples*975/1000-1]
}
