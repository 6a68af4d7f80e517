package rdmatest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/rdma"
)

func atomicCases() []testCase {
	return []testCase{
		{name: "atomic/values", nodes: 2, run: pair(atomicValues)},
		{name: "atomic/many_initiators_exactly_once", nodes: 4, run: atomicOnce},
		{name: "atomic/compare_and_swap_lets_one_win", nodes: 4, run: atomicLock},
		{name: "atomic/needs_eight_local_bytes", nodes: 2, run: pair(atomicShort)},
	}
}

func atomicValues(r *rig, a, b *side) {
	const top = ^uint64(0)
	const add, swap = rdma.WRAtomicFetchAndAdd, rdma.WRAtomicCmpAndSwp
	untried := slices.DeleteFunc(rdma.Opcodes(), func(op rdma.WROpcode) bool { return op.Operation().Moves != rdma.MovesWord })
	for _, kind := range kinds(r) {
		src, dst := a.memory(64), b.region(b.pd, kind, 64, everything)
		l := r.link()
		for i, c := range []struct {
			name              string
			op                rdma.WROpcode
			before, arg, swap uint64
			after             uint64
		}{
			{"add", add, 5, 7, 0, 12}, {"add_nothing", add, 5, 0, 0, 5}, {"add_wraps", add, top, 2, 0, 1},
			{"subtract", add, 5, top, 0, 4}, {"add_high_bits", add, 1 << 63, 1 << 62, 0, 3 << 62},
			{"add_carries", add, 0xffffffff, 1, 0, 1 << 32},
			{"swap", swap, 5, 5, 9, 9}, {"swap_not", swap, 5, 6, 9, 5}, {"swap_low_half_differs", swap, 1<<32 | 5, 5, 9, 1<<32 | 5},
			{"swap_high_half_differs", swap, 5, 1<<32 | 5, 9, 5}, {"swap_zero", swap, 0, 0, top, top}, {"swap_same", swap, 5, 5, 5, 5},
		} {
			untried = slices.DeleteFunc(untried, func(op rdma.WROpcode) bool { return op == c.op })
			what := fmt.Sprintf("%v %s", kind, c.name)
			dst.Store(0, pattern(uint64(i), 64))
			want := pattern(uint64(i), 64)
			dst.store64(24, c.before)
			src.store64(8, 0xaaaa)
			wr := request(c.op, uint64(i), dst, 24, []rdma.SGE{src.sge(8, 8)})
			wr.CompareAdd, wr.Swap = c.arg, c.swap
			if n, err := l.qa.PostSend([]rdma.SendWR{wr}); n == 0 && !c.op.Native() && errors.Is(err, rdma.ErrNotSupported) {
				continue
			} else if n != 1 || err != nil {
				r.Fatalf("%s: PostSend: %d, %v", what, n, err)
			}
			a.done(a.scq, uint64(i))
			if got := src.Load64(8); got != c.before {
				r.Errorf("%s: brought %#x, want %#x", what, got, c.before)
			}
			if got := dst.Load64(24); got != c.after {
				r.Errorf("%s: left %#x, want %#x", what, got, c.after)
			}
			r.same(what+": memory before", dst.Load(0, 24), want[:24])
			r.same(what+": memory behind", dst.Load(32, 32), want[32:])
		}
	}
	if len(untried) > 0 {
		r.Errorf("no values for %v", untried)
	}
}

// atomicOnce lets every node, the owner included, add to one word at the same
// time. Each value from 0 on must be fetched exactly once: one lost or doubled
// execution shows.
func atomicOnce(r *rig) {
	each, depth := unlessBrief(r, 400, 80), 16
	owner := r.sides[0]
	for _, kind := range kinds(r) {
		word := owner.region(owner.pd, kind, 64, everything)
		links := make([]*link, len(r.sides))
		old := make([]Region, len(r.sides))
		for i, s := range r.sides {
			links[i] = r.connect(s, owner)
			old[i] = s.memory(8 * each)
		}
		errs := make(chan error, len(links))
		for i, l := range links {
			go func() {
				errs <- driveWindow(r, l.a.scq, each, depth, func(k int) error {
					n, err := l.qa.PostSend([]rdma.SendWR{fetchAdd(uint64(k), word, 32, 1, old[i].sge(8*k, 8))})
					if err == nil && n != 1 {
						err = fmt.Errorf("took %d of 1", n)
					}
					return err
				})
			}()
		}
		for range links {
			if err := <-errs; err != nil {
				r.Error(err)
			}
		}
		if r.Failed() {
			return
		}
		total := each * len(links)
		if got := word.Load64(32); got != uint64(total) {
			r.Errorf("%v: the word is %d, want %d", kind, got, total)
		}
		seen := make([]int, total)
		for i := range links {
			last := -1
			for k := range each {
				v := int(old[i].Load64(8 * k))
				if v >= total || v <= last {
					r.Fatalf("%v: node %d fetched %d after %d of %d", kind, i, v, last, total)
				}
				last = v
				seen[v]++
			}
		}
		for v, n := range seen {
			if n != 1 {
				r.Fatalf("%v: the value %d was fetched %d times", kind, v, n)
			}
		}
		for _, l := range links {
			r.close(l.qa, l.qb)
		}
	}
}

// driveWindow posts requests 0 to n-1 with at most depth outstanding and
// polls their completions, which must come in order. It may run on a goroutine
// of its own.
func driveWindow(r *rig, cq rdma.CQ, n, depth int, postOne func(k int) error) error {
	posted, done := 0, 0
	wc := make([]rdma.WC, depth)
	var err error
	ok := waitFor(r.f.Patience+r.f.Patience, func() bool {
		for posted < n && posted-done < depth {
			if err = postOne(posted); err != nil {
				err = fmt.Errorf("post %d: %w", posted, err)
				return true
			}
			posted++
		}
		var got int
		if got, err = cq.Poll(wc); err != nil {
			return true
		}
		for _, c := range wc[:got] {
			if c.Status != rdma.WCSuccess || c.WRID != uint64(done) {
				err = fmt.Errorf("completion %d is of request %d, %q", done, c.WRID, c.Status)
				return true
			}
			done++
		}
		return done == n
	})
	if err == nil && !ok {
		err = fmt.Errorf("%d of %d requests completed in time", done, n)
	}
	return err
}

// atomicLock: in each round all nodes swap the same value for their own; one
// of them wins and the others see which.
func atomicLock(r *rig) {
	rounds := unlessBrief(r, 100, 20)
	owner := r.sides[1]
	word := owner.memory(64)
	n := len(r.sides)
	links, old := make([]*link, n), make([]Region, n)
	for i, s := range r.sides {
		links[i], old[i] = r.connect(s, owner), s.memory(64)
	}
	for round := range rounds {
		for i, l := range links {
			l.send(compareSwap(uint64(round), word, 0, uint64(round)<<8, uint64(round+1)<<8|uint64(i), old[i].sge(0, 8)))
		}
		winners := 0
		now := uint64(0)
		for i, l := range links {
			l.a.done(l.a.scq, uint64(round))
			if old[i].Load64(0) == uint64(round)<<8 {
				winners++
				now = uint64(round+1)<<8 | uint64(i)
			}
		}
		if winners != 1 {
			r.Fatalf("round %d: %d winners", round, winners)
		}
		if got := word.Load64(0); got != now {
			r.Fatalf("round %d: the word is %#x, want the winner's %#x", round, got, now)
		}
		for i := range links {
			if got := old[i].Load64(0); got != uint64(round)<<8 && got != now {
				r.Fatalf("round %d: node %d saw %#x, neither the old value nor the winner's %#x", round, i, got, now)
			}
		}
		word.store64(0, uint64(round+1)<<8)
	}
}

// atomicShort: an atomic whose local memory is not 8 bytes ends in an error,
// at post or by completion, and never writes beyond that memory.
func atomicShort(r *rig, _, b *side) {
	dst := b.memory(64)
	for _, n := range []int{0, 1, 4, 7} {
		r.sub(fmt.Sprint(n), pair(func(r *rig, a, _ *side) {
			src := a.filled(64, 1)
			l := r.link()
			took, err := l.qa.PostSend([]rdma.SendWR{fetchAdd(1, dst, 0, 1, src.sge(8, n))})
			if err == nil && took == 1 {
				if wc := a.next(a.scq); wc.Status == rdma.WCSuccess {
					r.Errorf("an atomic with %d local bytes succeeded", n)
				}
			}
			r.same("memory", src.Load(0, 64), pattern(1, 64))
		}))
	}
}
