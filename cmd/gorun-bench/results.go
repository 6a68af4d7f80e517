package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// results are what a session measured: for each contender, number of ranks and
// point a sample of each round.
type results struct {
	taken  map[cell]map[int]sample
	failed map[cell]string // why a point has no sample of a contender
	order  []cell          // as first met
}

// cell is where a sample belongs.
type cell struct {
	series
	variant string
	np      int
	point   point
}

// A series is what rows of different sizes have in common.
type series struct{ system, memory, progress, application, engine string }

func cellOf(j *job, p point) cell {
	return cell{series{j.system, j.memory, j.progress, j.application, j.engine}, j.variant, j.np, p}
}

// at makes sure that the cell is known.
func (r *results) at(w cell) map[int]sample {
	if r.taken == nil {
		r.taken, r.failed = map[cell]map[int]sample{}, map[cell]string{}
	}
	if r.taken[w] == nil {
		r.taken[w] = map[int]sample{}
		r.order = append(r.order, w)
	}
	return r.taken[w]
}

func (r *results) add(j *job, p point, round int, s sample) { r.at(cellOf(j, p))[round] = s }

func (r *results) has(j *job, p point, round int) bool {
	_, ok := r.taken[cellOf(j, p)][round]
	return ok
}

func (r *results) count(j *job, p point) int { return len(r.taken[cellOf(j, p)]) }

// fail notes why the points of a job that were never measured are missing.
func (r *results) fail(j *job, err error) {
	for _, p := range j.points {
		if r.count(j, p) == 0 {
			r.at(cellOf(j, p))
			r.failed[cellOf(j, p)] = err.Error()
		}
	}
}

// bad tells whether a result was wrong, or a system gave none.
func (r *results) bad() bool { return len(r.faults()) > 0 }

// faults names what was wrong or failed.
func (r *results) faults() []string {
	var list []string
	for _, w := range r.order {
		what := fmt.Sprintf("%v on %d ranks, %s %s", w.point, w.np, w.column(), cmp.Or(w.variant, w.application, w.engine, w.memory))
		if len(r.taken[w]) == 0 && r.failed[w] != "" {
			list = append(list, what+" failed")
		}
		for _, s := range r.taken[w] {
			if s.wrong {
				list = append(list, what+" is wrong")
				break
			}
		}
	}
	return list
}

// medians are the rounds' medians in a cell.
func (r *results) medians(w cell) map[int]float64 {
	m := map[int]float64{}
	for round, s := range r.taken[w] {
		if !s.wrong {
			m[round] = s.p50
		}
	}
	return m
}

// rows are the results for people and programs: of each series,
// number of ranks and point the best variant, gorun's with the ratio to the
// better peer. They are sorted by benchmark as in points, ranks, bytes.
func (r *results) rows(points []point) []row {
	type key struct {
		series
		np    int
		point point
	}
	best := map[key]row{}
	bestCell := map[key]cell{}
	var keys []key
	for _, w := range r.order {
		k := key{w.series, w.np, w.point}
		candidate := r.row(w)
		old, known := best[k]
		if !known {
			keys = append(keys, k)
		}
		if !known || candidate.better(&old) {
			best[k], bestCell[k] = candidate, w
		}
	}
	var list []row
	for _, k := range keys {
		row := best[k]
		if k.system == gorun {
			least := math.Inf(1)
			for _, of := range rivalSeries {
				of.memory = find(k.point.benchmark).reference(k.memory)
				other := key{of, k.np, k.point}
				theirs, ok := best[other]
				if !ok || !theirs.Verified || theirs.Runs == 0 || !row.Verified {
					continue
				}
				q, ok := ratioOf(r.medians(bestCell[k]), r.medians(bestCell[other]))
				if ok && theirs.Median < least {
					least = theirs.Median
					row.Peer, row.Ratio, row.RatioLow, row.RatioHigh, row.Pairs = of.system, significant(q.median), significant(q.low), significant(q.high), q.pairs
				}
			}
		}
		list = append(list, row)
	}
	position := map[string]int{}
	for i, p := range points {
		if _, ok := position[p.benchmark]; !ok {
			position[p.benchmark] = i
		}
	}
	slices.SortStableFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(position[a.Benchmark], position[b.Benchmark]), cmp.Compare(a.NP, b.NP), cmp.Compare(a.Bytes, b.Bytes))
	})
	return list
}

// row sums up the rounds in a cell.
func (r *results) row(w cell) row {
	runs := r.taken[w]
	one := row{Benchmark: w.point.benchmark, System: w.system, NP: w.np, Bytes: w.point.bytes, Type: w.point.typ,
		Memory: w.memory, Progress: w.progress, Application: w.application, Engine: w.engine, Variant: w.variant, Verified: true, Failed: r.failed[w]}
	if len(runs) > 0 {
		one.Failed = ""
	} else {
		one.Verified = false
	}
	var p10, p50, p90, p99, compute, total, alone, comm, overlap, honest, daemon []float64
	for _, round := range slices.Sorted(maps.Keys(runs)) {
		s := runs[round]
		one.Explanation = cmp.Or(s.explanation, one.Explanation)
		if s.wrong {
			one.Verified = false
			continue
		}
		one.Runs++
		one.Iterations += s.batch * s.count
		one.Executed += s.executed
		p10, p50, p90, p99 = append(p10, s.p10), append(p50, s.p50), append(p90, s.p90), append(p99, s.p99)
		if s.overlapped {
			compute, total, alone, comm = append(compute, s.compute), append(total, s.total), append(alone, s.alone), append(comm, s.comm)
			overlap, honest = append(overlap, s.overlap()), append(honest, s.honest())
			daemon = append(daemon, s.daemon)
		}
	}
	if one.Runs == 0 {
		return one
	}
	one.P10, one.Median, one.P90, one.P99 = digits(median(p10)), digits(median(p50)), digits(median(p90)), digits(median(p99))
	one.Least, one.Most = digits(slices.Min(p50)), digits(slices.Max(p50))
	if len(overlap) > 0 {
		one.Compute, one.Total, one.Alone, one.Comm = digits(median(compute)), digits(median(total)), digits(median(alone)), digits(median(comm))
		one.Daemon = digits(median(daemon))
		o, h := digits(median(overlap)), digits(median(honest))
		one.Overlap, one.Honest = &o, &h
		one.HonestLeast, one.HonestMost = digits(slices.Min(honest)), digits(slices.Max(honest))
	}
	b := find(w.point.benchmark)
	if b.how&perMessage != 0 && one.Median > 0 {
		one.Rate = math.Round(1e6 / one.Median)
		one.Bandwidth = digits(float64(w.point.bytes) / one.Median)
	}
	return one
}

// significant keeps four digits of a ratio, however small.
func significant(v float64) float64 {
	scale := math.Pow(10, 3-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}

// digits leaves out what no clock tells: tenths of nanoseconds are kept.
func digits(v float64) float64 { return math.Round(v*1e4) / 1e4 }
