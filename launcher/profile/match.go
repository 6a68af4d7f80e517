package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/calls"
)

func name(k *Rank) string {
	if k.Group > 0 {
		return fmt.Sprintf("rank %d of spawn %d", k.Rank, k.Group)
	}
	return fmt.Sprintf("rank %d", k.Rank)
}

// A point is an event of a rank.
type point struct{ rank, event int }

func (r *Report) at(p point) (*Event, *Call) {
	k := &r.Ranks[p.rank]
	e := &k.Events[p.event]
	return e, &k.Calls[e.Call]
}

// A meeting names a collective: the communicator's number is that of one group of ranks.
type meeting struct {
	group        int
	communicator uint32
	number       uint32
}

// A letter names a message.
type letter struct {
	group    int
	from, to int32
	number   uint32
}

// matches are the events that belong together.
type matches struct {
	meetings map[meeting][]point
	sends    map[letter]point
	gets     map[letter]point
}

func (r *Report) matches() matches {
	m := matches{make(map[meeting][]point), make(map[letter]point), make(map[letter]point)}
	for i := range r.Ranks {
		k := &r.Ranks[i]
		own := int32(k.Rank)
		for j := range k.Events {
			e := &k.Events[j]
			p := point{i, j}
			switch e.Kind {
			case calls.Collective:
				id := meeting{k.Group, e.Group, e.Sent}
				m.meetings[id] = append(m.meetings[id], p)
			case calls.Message, calls.Arrived:
				if e.To >= 0 && e.Sent != math.MaxUint32 {
					m.sends[letter{k.Group, own, e.To, e.Sent}] = p
				}
				if e.From >= 0 && e.Got != math.MaxUint32 {
					m.gets[letter{k.Group, e.From, own, e.Got}] = p
				}
			}
		}
	}
	return m
}

// align sets the clocks of all hosts to that of the first rank's, and begins at 0.
func (r *Report) align() {
	first := r.Ranks[0].Host
	var hosts []string
	for i := range r.Ranks {
		if h := r.Ranks[i].Host; h != first && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	offset := map[string]int64{first: 0}
	if len(hosts) > 0 {
		r.compare(first, hosts, offset)
	}
	begin := int64(math.MaxInt64)
	for i := range r.Ranks {
		k := &r.Ranks[i]
		begin = min(begin, k.Begin+offset[k.Host])
	}
	for i := range r.Ranks {
		k := &r.Ranks[i]
		by := offset[k.Host] - begin
		k.Begin, k.End = k.Begin+by, k.End+by
		for j := range k.Events {
			k.Events[j].Start += by
		}
	}
}

// compare finds the offsets of hosts' clocks: those with which no message arrives before it was sent. Hosts are compared with
// those that are known already.
func (r *Report) compare(first string, hosts []string, offset map[string]int64) {
	type bound struct{ low, high int64 }
	bounds := make(map[[2]string]bound) // of the second's offset less that of the first
	narrow := func(a, b string, low, high int64) {
		if a > b {
			a, b, low, high = b, a, -high, -low
		}
		have, known := bounds[[2]string{a, b}]
		if !known {
			have = bound{math.MinInt64 / 4, math.MaxInt64 / 4}
		}
		bounds[[2]string{a, b}] = bound{max(have.low, low), min(have.high, high)}
	}
	const open = math.MaxInt64 / 4
	m := r.matches()
	for id, p := range m.gets {
		s, known := m.sends[id]
		if a, b := r.Ranks[s.rank].Host, r.Ranks[p.rank].Host; known && a != b {
			sent, _ := r.at(s)
			got, _ := r.at(p)
			narrow(a, b, sent.Start-got.Start-got.Took, open)
		}
	}
	for _, all := range m.meetings {
		_, c := r.at(all[0])
		if !synchronizes(c.Op) {
			continue
		}
		type span struct{ last, end int64 } // the last begin, the first end
		spans := make(map[string]span)
		for _, p := range all {
			e, _ := r.at(p)
			s, known := spans[r.Ranks[p.rank].Host]
			if !known {
				s = span{math.MinInt64 / 4, math.MaxInt64 / 4}
			}
			spans[r.Ranks[p.rank].Host] = span{max(s.last, e.Start), min(s.end, e.Start+e.Took)}
		}
		for a, x := range spans {
			for b, y := range spans {
				if a < b {
					narrow(a, b, x.last-y.end, x.end-y.last)
				}
			}
		}
	}
	for len(hosts) > 0 {
		best, from, have := -1, "", bound{-open, open}
		for i, h := range hosts {
			for known := range offset {
				b, ok := bounds[[2]string{min(known, h), max(known, h)}]
				if known > h {
					b = bound{-b.high, -b.low}
				}
				if ok && b.low > -open && b.high < open && (best < 0 || b.high-b.low < have.high-have.low) {
					best, from, have = i, known, b
				}
			}
		}
		c := Clock{Guessed: best < 0}
		if best < 0 { // nothing to compare: as if both had begun at once
			best = 0
			c.Host = hosts[0]
			offset[c.Host] = r.begin(first) - r.begin(c.Host)
		} else {
			c.Host = hosts[best]
			by := have.low + (have.high-have.low)/2
			if have.low <= 0 && have.high >= 0 {
				by = 0 // they have one clock
			} else {
				c.Error = time.Duration((have.high - have.low) / 2)
			}
			offset[c.Host] = offset[from] + by
		}
		c.Offset = time.Duration(offset[c.Host])
		hosts = slices.Delete(hosts, best, best+1)
		r.Clocks = append(r.Clocks, c)
	}
	slices.SortFunc(r.Clocks, func(a, b Clock) int { return strings.Compare(a.Host, b.Host) })
}

// begin is when the first rank of a host began, by its clock.
func (r *Report) begin(host string) int64 {
	begin := int64(math.MaxInt64)
	for i := range r.Ranks {
		if r.Ranks[i].Host == host {
			begin = min(begin, r.Ranks[i].Begin)
		}
	}
	return begin
}

// match finds who has waited for whom.
func (r *Report) match() {
	m := r.matches()
	waits := make(map[[6]string]*Wait)
	wait := func(kind string, p, late point, d int64) *Wait {
		_, own := r.at(p)
		_, other := r.at(late)
		id := [6]string{kind, own.Op, own.At(), other.Op, other.At(), fmt.Sprint(late.rank)}
		w := waits[id]
		if w == nil {
			w = &Wait{For: late.rank, Kind: kind, Op: own.Op, At: own.At(), Late: other.Op + " " + other.At(), by: make(map[int]bool)}
			waits[id] = w
		}
		w.Total, w.Longest = w.Total+time.Duration(d), max(w.Longest, time.Duration(d))
		w.Count++
		w.by[p.rank] = true
		return w
	}
	for _, all := range m.meetings {
		if len(all) < 2 {
			continue
		}
		last := slices.MaxFunc(all, func(a, b point) int {
			x, _ := r.at(a)
			y, _ := r.at(b)
			return cmp.Compare(x.Start, y.Start)
		})
		came, _ := r.at(last)
		for _, p := range all {
			if e, _ := r.at(p); p != last && e.Start+e.Took >= came.Start && e.Start < came.Start {
				wait(lateCollective, p, last, came.Start-e.Start)
			}
		}
	}
	for i := range r.Ranks {
		k := &r.Ranks[i]
		latest, arrives := point{-1, 0}, int64(0) // the last to be sent of those that the call has received
		for j := range k.Events {
			e := &k.Events[j]
			if e.Kind != calls.Message && e.Kind != calls.Arrived {
				latest = point{-1, 0}
				continue
			}
			if s, known := m.sends[letter{k.Group, e.From, int32(k.Rank), e.Got}]; known && e.From >= 0 {
				if sent, _ := r.at(s); latest.rank < 0 || sent.Start > arrives {
					latest, arrives = s, sent.Start
				}
			}
			if e.Kind == calls.Arrived {
				continue
			}
			if latest.rank >= 0 && arrives > e.Start {
				d := min(arrives, e.Start+e.Took) - e.Start
				w := wait(lateSender, point{i, j}, latest, d)
				if r.othersWereThere(m, i, j, e.Start+d) {
					w.ordered += time.Duration(d)
				}
			}
			latest = point{-1, 0}
			c := &k.Calls[e.Call]
			if p, known := m.gets[letter{k.Group, int32(k.Rank), e.To, e.Sent}]; known && e.To >= 0 && (c.Op == "Send" || c.Op == "Ssend") {
				if got, _ := r.at(p); got.Start > e.Start && e.Start+e.Took >= got.Start {
					wait(lateReceiver, point{i, j}, p, got.Start-e.Start)
				}
			}
		}
	}
	for _, w := range waits {
		w.Ranks = len(w.by)
		r.Waits = append(r.Waits, *w)
	}
	slices.SortFunc(r.Waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.For, b.For), strings.Compare(a.At, b.At))
	})
}

// othersWereThere tells whether, when a call of a rank waited for a message, those of other ranks were there that it received next.
func (r *Report) othersWereThere(m matches, rank, event int, until int64) bool {
	k := &r.Ranks[rank]
	from := k.Events[event].From
	for j := event + 1; j < len(k.Events) && j <= event+4; j++ {
		e := &k.Events[j]
		if e.Kind != calls.Message || e.From < 0 || e.From == from {
			return false
		}
		if s, known := m.sends[letter{k.Group, e.From, int32(k.Rank), e.Got}]; known {
			sent, _ := r.at(s)
			return sent.Start+sent.Took < until-(until-k.Events[event].Start)/2
		}
	}
	return false
}
