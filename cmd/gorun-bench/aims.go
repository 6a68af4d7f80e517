package main

import (
	"fmt"
	"slices"
)

// The aims are the ratios that gorun is held to, each by the better of MPICH and
// Open MPI with its best settings: a row beyond its aim is marked. They hold for
// as many cores as they were set on, which are two, and more.
var aims = []struct {
	benchmarks []string
	np         []int // nil: any
	sizes      []int // nil: any
	memory     string
	ratio      float64 // of times, at most
	rate       float64 // messages a second at least, 0: any
}{
	{[]string{"latency"}, nil, []int{8}, "", 0.8, 0},
	{[]string{"latency"}, nil, []int{64 << 10}, registered, 0.6, 0},
	{[]string{"latency"}, nil, []int{64 << 10}, ordinary, 0.9, 0},
	{[]string{"bw"}, nil, []int{1 << 20}, "", 1 / 1.1, 0},
	{[]string{"mr"}, []int{2}, []int{8}, "", 1, 12e6},
	{[]string{"barrier"}, []int{2}, nil, "", 0.6, 0},
	{[]string{"barrier"}, []int{4}, nil, "", 0.9, 0},
	{[]string{"barrier"}, []int{8}, nil, "", 0.7, 0},
	{[]string{"allreduce"}, []int{2}, []int{8}, "", 0.5, 0},
	{[]string{"allreduce"}, []int{4}, []int{8}, "", 0.8, 0},
	{[]string{"allreduce"}, []int{2, 4}, []int{256 << 10, 1 << 20}, registered, 0.3, 0},
	{[]string{"allreduce"}, []int{2, 4}, []int{256 << 10, 1 << 20}, ordinary, 0.9, 0},
	{[]string{"alltoall"}, []int{2, 4}, []int{8, 1 << 10, 64 << 10}, "", 0.8, 0},
	{[]string{"bcast", "reduce_scatter", "allgather", "gather", "scatter", "reduce"}, nil, []int{8, 1 << 10, 64 << 10, 1 << 20}, "", 1, 0},
	{[]string{"launch"}, []int{1, 4, 16}, nil, "", 0.8, 0},
	{[]string{"launch"}, []int{64}, nil, "", 1, 0},
	{[]string{"launch_limit"}, []int{64}, nil, "", 1.3, 0},
	{[]string{"init_limit"}, []int{4, 64}, nil, "", 2.5, 0},
	{[]string{"init_mpich", "output"}, nil, nil, "", 1, 0},
	// More ranks than cores are never worse.
	{nil, []int{8, 16}, nil, "", 1, 0},
}

// aim is the most that a row's ratio may be, and how many messages a second it
// must have; ok is false where nothing is set.
func (r *row) aim() (ratio, rate float64, ok bool) {
	b := find(r.Benchmark)
	if r.System != gorun || r.Application != "" || b.group != "messages" && b.group != "collectives" && b.group != "start" || r.Type != "byte" && r.Type != "float" {
		return 0, 0, false
	}
	for _, a := range aims {
		if (a.benchmarks == nil && b.group != "start" || slices.Contains(a.benchmarks, r.Benchmark)) && (a.np == nil || slices.Contains(a.np, r.NP)) &&
			(a.sizes == nil || slices.Contains(a.sizes, r.Bytes)) && (a.memory == "" || a.memory == r.Memory) {
			return a.ratio, a.rate, true
		}
	}
	return 0, 0, false
}

// missed tells whether a row has a ratio that is beyond its aim, in the digits
// that are shown.
func (r *row) missed() bool {
	ratio, rate, ok := r.aim()
	return ok && r.Peer != "" && (r.Ratio >= ratio+0.005 || r.Rate < rate)
}

// aimText is what a row is held to, "" for nothing.
func (r *row) aimText() string {
	ratio, _, ok := r.aim()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}

// ratesText tells of the rates among the aims of the rows, "" for none.
func ratesText(rows []row) string {
	for i := range rows {
		if _, rate, _ := rows[i].aim(); rate > 0 && rows[i].Peer != "" {
			return fmt.Sprintf("; %s is meant to be %.0f M/s and more, too", rows[i].label(), rate/1e6)
		}
	}
	return ""
}

// judged counts the rows with a ratio and an aim, and those that miss it.
func judged(rows []row) (all, missed int) {
	for i := range rows {
		if _, _, ok := rows[i].aim(); ok && rows[i].Peer != "" {
			all++
			if rows[i].missed() {
				missed++
			}
		}
	}
	return all, missed
}
