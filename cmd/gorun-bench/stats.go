package main

import (
	"math"
	"slices"
)

// quantile is the smallest of the sorted samples that at least so large a part
// of all samples, in per cent, does not exceed.
func quantile(sorted []float64, percent int) float64 {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 0:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[n/2]
}

// middle is the median of quotients: of two in the middle their geometric mean,
// since twice as slow is as far from 1 as twice as fast.
func middle(quotients []float64) float64 {
	logs := make([]float64, len(quotients))
	for i, q := range quotients {
		logs[i] = math.Log(q)
	}
	return math.Exp(median(logs))
}

// A ratio is of times, ours to a peer's: below 1 we are faster.
type ratio struct {
	median, low, high float64
	pairs             int
}

// ratioOf divides what was measured in the same round: machines drift, and a
// round is short. A round in which one of the two is missing counts not.
func ratioOf(ours, theirs map[int]float64) (ratio, bool) {
	var quotients []float64
	for round, a := range ours {
		if b := theirs[round]; b > 0 {
			quotients = append(quotients, a/b)
		}
	}
	if len(quotients) == 0 {
		return ratio{}, false
	}
	return ratio{median: middle(quotients), low: slices.Min(quotients), high: slices.Max(quotients), pairs: len(quotients)}, true
}
