package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/coll"
)

// Tuning times every algorithm of every collective and writes the table that
// selects the best ones. Ranks are made to use an algorithm in the way in which
// users will: by a table, in which each kind has one algorithm for all sizes.
// The n-th such table has the n-th algorithm of each kind, so that one job times
// one algorithm of all kinds, and the tables take turns as systems do elsewhere.

// tuningVariable names the file with the table of a rank.
const tuningVariable = "GORUN_TUNING"

// gain is how much faster than the built-in choice an algorithm must be to
// replace it: less is noise.
const gain = 0.03

func tableName(n int) string { return fmt.Sprintf("table %d", n) }

// candidates are the algorithms to try for a kind of call: the ranks are on one host.
func candidates(kind coll.Kind) []coll.Algorithm {
	return slices.DeleteFunc(coll.Algorithms(kind), func(a coll.Algorithm) bool { return a == coll.TwoLevel || a == coll.HostChain })
}

// prepareTuning makes the tables and lists the jobs of a round.
func (s *session) prepareTuning() error {
	most := 0
	for _, k := range coll.Kinds() {
		most = max(most, len(candidates(k)))
	}
	for n := range most {
		table := coll.DefaultTable()
		for _, k := range coll.Kinds() {
			if list := candidates(k); len(list) > 1 {
				if err := table.Always(k, list[min(n, len(list)-1)]); err != nil {
					return err
				}
			}
		}
		file := filepath.Join(s.scratch.dir, fmt.Sprintf("table-%d.json", n))
		if err := os.WriteFile(file, table.Bytes(), 0o644); err != nil {
			return err
		}
		for _, np := range s.params.counts {
			var points []point
			for _, p := range s.params.points {
				b := find(p.benchmark)
				if list := candidates(b.kind); b.kind != 0 && b.how&overlaps == 0 && b.runsOn(np) && len(list) > max(1, n) && (p.typ != "char" || np <= mostChars) {
					points = append(points, p)
				}
			}
			for _, memory := range s.params.memories {
				c := gorunContender(s.self, memory, tuningVariable+"="+file)
				c.variant, c.devices = tableName(n), s.params.devices()
				if len(points) > 0 {
					s.jobs = append(s.jobs, &job{contender: c, np: np, points: slices.Clone(points)})
				}
			}
		}
	}
	// The tables take turns within a number of ranks.
	slices.SortStableFunc(s.jobs, func(a, b *job) int { return a.np - b.np })
	return nil
}

// tune runs a session of all algorithms and writes the table into file, with
// what it changes on out. What was measured when it ended early is used.
func (s *session) tune(ctx context.Context, out io.Writer, file *os.File) error {
	if err := s.prepareTuning(); err != nil {
		return err
	}
	if len(s.jobs) == 0 {
		return fmt.Errorf("nothing to tune: %s has no collective with several algorithms on these numbers of ranks", s.params.benchmarkList)
	}
	ended := s.run(ctx)
	s.progress.clear()
	table, changes, err := s.results.tuned(s.params)
	if err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Fprintln(out, c)
	}
	if len(changes) == 0 {
		fmt.Fprintf(out, "nothing changes: the built-in choices are the fastest, or within %.0f %% of it\n", gain*100)
	}
	err = fill(file, func(w io.Writer) error {
		_, err := w.Write(table.Bytes())
		return err
	})
	return cmp.Or(err, ended)
}

// tuned is the built-in table with the best algorithms in the places that were
// measured, and what that changes in words. A size's rule holds up to the next.
func (r *results) tuned(p *params) (*coll.Table, []string, error) {
	table := coll.DefaultTable()
	builtIn := coll.DefaultTable()
	var changes []string
	for _, np := range p.counts {
		for _, name := range benchmarkNames() {
			kind := find(name).kind
			if kind == 0 || find(name).how&overlaps != 0 || len(candidates(kind)) < 2 {
				continue
			}
			var rules []coll.Rule
			for _, pt := range p.points {
				if pt.benchmark != name {
					continue
				}
				times := r.algorithmTimes(p, np, pt)
				if len(times) == 0 {
					continue
				}
				_, before := builtIn.Rules(kind, np)
				best, old := bestOf(times), ruleFor(before, pt.bytes)
				if t, ok := times[old]; ok && times[best] > t*(1-gain) {
					best = old
				}
				if best != old {
					changes = append(changes, fmt.Sprintf("%s on %d ranks, %s bytes: %v, %s us, instead of %v, %s us", name, np, sizeName(pt.bytes),
						best, figure(times[best]), old, figure(times[old])))
				}
				from := pt.bytes
				if len(rules) == 0 {
					from = 0
				}
				if len(rules) == 0 || rules[len(rules)-1].Algorithm != best {
					rules = append(rules, coll.Rule{Bytes: from, Algorithm: best})
				}
			}
			if len(rules) == 0 {
				continue
			}
			if err := table.Set(kind, np, rules...); err != nil {
				return nil, nil, err
			}
		}
	}
	return table, changes, nil
}

// algorithmTimes are the times of a point by algorithm, those of both kinds of
// memory averaged as their geometric mean; without those that were not measured
// in all kinds or gave a wrong result.
func (r *results) algorithmTimes(p *params, np int, pt point) map[coll.Algorithm]float64 {
	times := map[coll.Algorithm]float64{}
	for n, a := range candidates(find(pt.benchmark).kind) {
		sum := 0.0
		for _, memory := range p.memories {
			row := r.row(cell{series{system: gorun, memory: memory}, tableName(n), np, pt})
			if row.Runs == 0 || !row.Verified {
				sum = math.NaN()
				break
			}
			sum += math.Log(row.Median)
		}
		if !math.IsNaN(sum) {
			times[a] = math.Exp(sum / float64(len(p.memories)))
		}
	}
	return times
}

// bestOf is the algorithm with the least time.
func bestOf(times map[coll.Algorithm]float64) coll.Algorithm {
	return slices.MinFunc(slices.Sorted(maps.Keys(times)), func(a, b coll.Algorithm) int {
		return int(math.Copysign(1, times[a]-times[b]))
	})
}

// ruleFor is the algorithm that the rules give a size.
func ruleFor(rules []coll.Rule, bytes int) coll.Algorithm {
	a := rules[0].Algorithm
	for _, r := range rules {
		if r.Bytes <= bytes {
			a = r.Algorithm
		}
	}
	return a
}

// tuneCommand is the command with --tune.
func tuneCommand(ctx context.Context, s *session, out io.Writer, file *os.File) (int, error) {
	err := s.tune(ctx, out, file)
	if sig, ok := ended(err); ok {
		s.log.Warnf("%v: the table holds what was measured", err)
		return 128 + int(sig), nil
	}
	if err != nil {
		return 0, err
	}
	if s.results.bad() {
		s.log.Error("not all algorithms gave right results, or some could not be measured: " + strings.Join(s.results.faults(), "; "))
		return statusFailed, nil
	}
	return 0, nil
}
