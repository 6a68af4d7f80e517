package profile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/calls"
)

// These are what ranks have recorded.
type (
	Rank  = calls.Rank
	Call  = calls.Call
	Peer  = calls.Peer
	Event = calls.Event
)

// Unpack reads a record as a host sends it.
func Unpack(data []byte) (*Rank, error) { return calls.Unpack(data) }

// Sort puts records in order, by group and rank.
func Sort(ranks []Rank) {
	slices.SortFunc(ranks, func(a, b Rank) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Rank, b.Rank)) })
}

// A Report is a job's profile. Times are shares and sums over all ranks that have recorded calls.
type Report struct {
	Ranks   []Rank // by group and rank; times are since the begin of the first
	Size    int    // of the job, as far as it is known
	Elapsed time.Duration
	Total   time.Duration // that of all ranks together
	Calls   []Sum         // the most time first
	Outside []time.Duration
	Waits   []Wait     // the longest first
	Faults  []Fault    // the worst first
	Clocks  []Clock    // of hosts other than rank 0's
	Matrix  [][]uint64 `json:"-"` // bytes from a rank to another one, of the job's own group
}

// A Sum is a call at one place of the program, of all ranks.
type Sum struct {
	Op, Function, At string
	Count, Out, In   uint64
	Total, Longest   time.Duration
	Least, Most      int // the ranks that were in it for the shortest and for the longest time
	ByRank           []time.Duration
	InByRank         []uint64 // bytes
}

// A Wait is time that ranks have waited for one, at one place.
type Wait struct {
	For     int // an index of Report.Ranks
	Kind    string
	Op, At  string // of those that wait
	Late    string // what that rank called, and where
	Total   time.Duration
	Longest time.Duration
	Count   int
	Ranks   int           // that have waited
	ordered time.Duration // in waits while messages of others were there
	by      map[int]bool
}

// The kinds of Wait.
const (
	lateCollective = "late to a collective"
	lateSender     = "late sender"
	lateReceiver   = "late receiver"
)

// A Fault is a reason why the job takes so long, in words, with the share of all ranks' time that it takes.
type Fault struct {
	Text  string
	Share float64
}

// A Clock is that of a host, as far as it could be compared with that of rank 0's host.
type Clock struct {
	Host    string
	Offset  time.Duration
	Error   time.Duration
	Guessed bool // nothing was there to compare
}

// Analyze finds out where the time of ranks went. It may change them.
func Analyze(ranks []Rank) *Report {
	Sort(ranks)
	r := &Report{Ranks: ranks}
	if len(ranks) == 0 {
		return r
	}
	r.Size = ranks[0].Size
	r.align()
	r.sum()
	r.match()
	r.judge()
	return r
}

// name is a rank for people.
func (r *Report) name(i int) string { return name(&r.Ranks[i]) }

// sum adds up calls by place.
func (r *Report) sum() {
	type key struct{ op, function, at string }
	index := make(map[key]int)
	r.Outside = make([]time.Duration, len(r.Ranks))
	size := r.Size
	if size > matrixMost {
		size = 0
	}
	r.Matrix = make([][]uint64, size)
	for i := range r.Ranks {
		k := &r.Ranks[i]
		r.Elapsed = max(r.Elapsed, time.Duration(k.End))
		lived := time.Duration(k.End - k.Begin)
		r.Total += lived
		inside := time.Duration(0)
		for j := range k.Calls {
			c := &k.Calls[j]
			id := key{c.Op, c.Function, c.At()}
			at, known := index[id]
			if !known {
				at = len(r.Calls)
				index[id] = at
				r.Calls = append(r.Calls, Sum{Op: c.Op, Function: c.Function, At: id.at, ByRank: make([]time.Duration, len(r.Ranks)), InByRank: make([]uint64, len(r.Ranks))})
			}
			s := &r.Calls[at]
			total := c.Total
			if j == k.Current { // it never ended
				total += time.Duration(k.Events[len(k.Events)-1].Took)
			}
			s.Count, s.Out, s.In = s.Count+c.Count, s.Out+c.Out, s.In+c.In
			s.Total, s.Longest = s.Total+total, max(s.Longest, c.Longest)
			s.ByRank[i] += total
			s.InByRank[i] += c.In
			inside += total
		}
		r.Outside[i] = max(0, lived-inside)
		if k.Group == 0 && k.Rank < size {
			row := make([]uint64, size)
			for _, p := range k.Peers {
				if p.Rank < size {
					row[p.Rank] = p.SentBytes
				}
			}
			r.Matrix[k.Rank] = row
		}
	}
	for i := range r.Calls {
		s := &r.Calls[i]
		for j, t := range s.ByRank {
			if t < s.ByRank[s.Least] {
				s.Least = j
			}
			if t > s.ByRank[s.Most] {
				s.Most = j
			}
		}
	}
	slices.SortStableFunc(r.Calls, func(a, b Sum) int { return cmp.Compare(b.Total, a.Total) })
}

// matrixMost is the size of the largest world whose map of bytes is kept.
const matrixMost = 1024

// synchronizes tells whether nobody leaves a collective before all have come.
func synchronizes(op string) bool {
	return op == "Barrier" || strings.HasPrefix(op, "Allreduce") || strings.HasPrefix(op, "Alltoall") || strings.HasPrefix(op, "Allgather")
}

// nth is the n-th smallest of a list.
func nth[T cmp.Ordered](list []T, n int) T {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[n]
}

func median[T cmp.Ordered](list []T) (m T) {
	if len(list) == 0 {
		return m
	}
	return nth(list, (len(list)-1)/2)
}
