package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// loadAverage is how many processes ran or wanted to in the last minute, 0 where that is not known.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// busyBefore tells whether others had the machine when the session began: more than half of its cores.
func (h *header) busyBefore() bool { return h.LoadBefore > float64(h.Machine.Cores)/2 }

// busyAfter tells whether they had it at the end, when the load has the session's own ranks in it.
func (h *header) busyAfter(rows []row) bool {
	own := 0
	for i := range rows {
		own = max(own, rows[i].NP)
	}
	return h.LoadAfter > float64(own)+float64(h.Machine.Cores)/2
}

// caveats are the reasons to doubt the figures, which stand wherever the figures are shown. Results of older versions have
// nothing of them.
func (h *header) caveats(rows []row) []string {
	var list []string
	if h.busyBefore() || h.busyAfter(rows) {
		list = append(list, fmt.Sprintf("The machine was busy: load %.1f before and %.1f after, on %d cores. These figures tell what others left to each system and "+
			"not which is faster; measure again on an idle machine.", h.LoadBefore, h.LoadAfter, h.Machine.Cores))
	}
	if h.Rounds < h.Planned {
		list = append(list, fmt.Sprintf("Only %d of %d rounds were made to their end.", h.Rounds, h.Planned))
	}
	short, measured, least := 0, 0, h.Planned
	for i := range rows {
		if r := &rows[i]; r.Runs > 0 {
			measured++
			if r.Runs < h.Planned {
				short++
				least = min(least, r.Runs)
			}
		}
	}
	if short > 0 {
		list = append(list, fmt.Sprintf("%d of %d figures are of fewer than the %d rounds that were planned, the least of %d.", short, measured, h.Planned, least))
	}
	return list
}
