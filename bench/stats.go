package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// percentile returns the smallest sample that at least p percent of the samples do not exceed (the
// nearest rank): always a time that was measured. With fewer than 100 samples p99 is the longest. It is 0
// for no samples.
func percentile(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the middle sample, or the mean of the two in the middle, and 0 for no samples.
func median(samples []time.Duration) time.Duration {
	n := len(samples)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio is the median of a in units of the median of b; NaN where one has no samples.
func ratio(a, b []time.Duration) float64 {
	if len(a) == 0 || len(b) == 0 {
		return math.NaN()
	}
	return float64(median(a)) / float64(median(b))
}

// resamples is how many random draws ratioRange takes.
const resamples = 2000

// ratioRange says how far the ratio can be trusted: the bounds of 95 % of the ratios of samples that are
// drawn from them (a bootstrap, with a fixed seed). a and b are in the order of their measurement and of one
// length, so that a[i] and b[i] are neighbours in time: they are drawn in pairs, and a load on the machine
// that met both widens nothing. It is NaN for no samples.
func ratioRange(a, b []time.Duration) (low, high float64) {
	n := min(len(a), len(b)) // they differ in a run that was interrupted
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
