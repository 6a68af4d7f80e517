package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	worthSaying = 0.03 // of all ranks' time
	uneven      = 1.3  // times the median, from which on work is not even
	hot         = 2.0  // times the mean of bytes
)

// judge says what is wrong, as far as it can be seen.
func (r *Report) judge() {
	if r.Total <= 0 {
		return
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		if share := float64(w.Total) / float64(r.Total); share >= worthSaying {
			r.Faults = append(r.Faults, Fault{r.explain(w, share), share})
		}
	}
	for i := range r.Calls {
		s := &r.Calls[i]
		if share := float64(s.Total) / float64(r.Total); share >= worthSaying && len(r.Ranks) > 2 && strings.HasPrefix(s.Op, "Alltoall") {
			most, sum := 0, uint64(0)
			for j, n := range s.InByRank {
				if sum += n; n > s.InByRank[most] {
					most = j
				}
			}
			if mean := float64(sum) / float64(len(r.Ranks)); float64(s.InByRank[most]) >= hot*mean && mean > 0 {
				r.Faults = append(r.Faults, Fault{fmt.Sprintf("%s receives %.1f times as many bytes as the mean in %s (%s), which takes %s of the ranks' time: spread them, or have others receive for it",
					r.name(most), float64(s.InByRank[most])/mean, s.Op, s.At, percent(share)), share})
			}
		}
	}
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(b.Share, a.Share) })
}

// explain says why ranks wait.
func (r *Report) explain(w *Wait, share float64) string {
	who := r.name(w.For)
	others := "the others wait"
	if w.Ranks == 1 {
		others = "another one waits"
	} else if w.Ranks < len(r.Ranks)-1 {
		others = fmt.Sprintf("%d others wait", w.Ranks)
	}
	cost := fmt.Sprintf("%s for it in %s (%s), %s of the ranks' time", others, w.Op, w.At, percent(share))
	if w.Kind == lateReceiver {
		return fmt.Sprintf("%s receives late (%s): %s", who, w.Late, strings.Replace(cost, "wait", "wait to send,", 1))
	}
	if w.ordered*2 > w.Total {
		return fmt.Sprintf("%s waits for %s in %s (%s), %s of the ranks' time, while messages of others are there: WaitAny, or a receive from AnySource, takes them as they come",
			r.waiters(w), who, w.Op, w.At, percent(share))
	}
	k := &r.Ranks[w.For]
	if w.Kind == lateSender {
		if peers := len(k.Peers); peers > 2 && w.Ranks > 2 && strings.HasPrefix(w.Late, "Send ") && r.Outside[w.For]*2 < time.Duration(k.End-k.Begin) {
			return fmt.Sprintf("%s sends to %d ranks one after the other (%s): %s; Bcast, Scatter or Isend lets them share the work", who, peers, w.Late, cost)
		}
	}
	if len(r.Ranks) > 1 {
		rest := slices.Delete(slices.Clone(r.Outside), w.For, w.For+1)
		if m := median(rest); m > 0 && w.Count > w.Ranks && float64(r.Outside[w.For]) > uneven*float64(m) && (r.Outside[w.For]-m)*4 > w.Longest {
			return fmt.Sprintf("%s has %.1f times the work of the others outside of calls (%s, median %s): %s", who, float64(r.Outside[w.For])/float64(m), short(r.Outside[w.For]), short(m), cost)
		}
	}
	if w.Count <= w.Ranks {
		return fmt.Sprintf("%s comes %s late to %s, once: %s", who, short(w.Longest), w.Late, cost)
	}
	return fmt.Sprintf("%s comes late to %s, %d times, by up to %s: %s", who, w.Late, w.Count/max(w.Ranks, 1), short(w.Longest), cost)
}

// waiters names those that wait.
func (r *Report) waiters(w *Wait) string {
	if len(w.by) == 1 {
		for i := range w.by {
			return r.name(i)
		}
	}
	return fmt.Sprintf("each of %d ranks", len(w.by))
}

func percent(share float64) string {
	if share >= 0.1 {
		return fmt.Sprintf("%.0f %%", 100*share)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// short is a time in three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
