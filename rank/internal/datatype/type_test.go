package datatype

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// An entry is one of a type map, as the standard writes it.
type entry struct {
	basic Basic
	at    int
}

// A plain is a type as a list of all its entries: the slow, obvious version.
type plain struct {
	entries []entry
	lb, ub  int
	marked  bool
}

func plainOf(b Basic) plain { return plain{entries: []entry{{b, 0}}, ub: b.Size()} }

func (p plain) some() bool { return p.marked || len(p.entries) > 0 }

func (p plain) size() (n int) {
	for _, e := range p.entries {
		n += e.basic.Size()
	}
	return n
}

// placed is a copy of p at a displacement.
type placed struct {
	at int
	p  plain
}

// together is the type map of copies.
func together(copies []placed) plain {
	var all plain
	var lbs, ubs, marks, markUbs []int
	for _, c := range copies {
		if !c.p.some() {
			continue
		}
		for _, e := range c.p.entries {
			all.entries = append(all.entries, entry{e.basic, e.at + c.at})
		}
		lbs, ubs = append(lbs, c.p.lb+c.at), append(ubs, c.p.ub+c.at)
		if c.p.marked {
			marks, markUbs = append(marks, c.p.lb+c.at), append(markUbs, c.p.ub+c.at)
		}
	}
	if marks != nil {
		lbs, ubs, all.marked = marks, markUbs, true
	}
	if lbs != nil {
		all.lb, all.ub = slices.Min(lbs), slices.Max(ubs)
	}
	return all
}

// items are count copies at the extent.
func (p plain) items(at, count int) (copies []placed) {
	for i := range count {
		copies = append(copies, placed{at + i*(p.ub-p.lb), p})
	}
	return copies
}

// offsets are the places of the bytes of count items in packed order.
func (p plain) offsets(count int) (list []int) {
	for _, c := range p.items(0, count) {
		for _, e := range p.entries {
			for b := range e.basic.Size() {
				list = append(list, c.at+e.at+b)
			}
		}
	}
	return list
}

// A pair is a type in both versions.
type pair struct {
	t *Type
	p plain
}

// grow makes a random type of others by choices from next, which gives numbers
// below its argument.
func grow(old []pair, next func(n int) int) (pair, error) {
	pick := func() pair { return old[next(len(old))] }
	o := pick()
	extent := o.p.ub - o.p.lb
	few := func() (list []int) {
		for range next(4) {
			list = append(list, next(4))
		}
		return list
	}
	places := func(n, spread int) (list []int) {
		for range n {
			list = append(list, next(2*spread)-spread/2)
		}
		return list
	}
	switch next(9) {
	case 0:
		n := next(5)
		t, err := Contiguous(n, o.t)
		return pair{t, together(o.p.items(0, n))}, err
	case 1:
		count, length, stride := next(5), next(4), next(8)-3
		t, err := Vector(count, length, stride, o.t)
		var copies []placed
		for i := range count {
			copies = append(copies, o.p.items(i*stride*extent, length)...)
		}
		return pair{t, together(copies)}, err
	case 2:
		count, length, stride := next(5), next(4), next(60)-20
		t, err := Hvector(count, length, stride, o.t)
		var copies []placed
		for i := range count {
			copies = append(copies, o.p.items(i*stride, length)...)
		}
		return pair{t, together(copies)}, err
	case 3, 4:
		lengths := few()
		bytes := next(2) == 0
		unit, spread := extent, 10
		if bytes {
			unit, spread = 1, 60
		}
		displs := places(len(lengths), spread)
		t, err := Indexed(lengths, displs, o.t)
		if bytes {
			t, err = Hindexed(lengths, displs, o.t)
		}
		var copies []placed
		for i, d := range displs {
			copies = append(copies, o.p.items(d*unit, lengths[i])...)
		}
		return pair{t, together(copies)}, err
	case 5:
		length, displs := next(4), places(next(5), 10)
		blocks, unit := IndexedBlock, extent
		if next(2) == 0 {
			blocks, unit = HindexedBlock, 1
		}
		t, err := blocks(length, displs, o.t)
		var copies []placed
		for _, d := range displs {
			copies = append(copies, o.p.items(d*unit, length)...)
		}
		return pair{t, together(copies)}, err
	case 6:
		lengths := few()
		displs := places(len(lengths), 60)
		var types []*Type
		var copies []placed
		align := 1
		for i, d := range displs {
			o := pick()
			types = append(types, o.t)
			copies = append(copies, o.p.items(d, lengths[i])...)
			if lengths[i] > 0 {
				for _, e := range o.p.entries {
					align = max(align, basicTable[e.basic].align)
				}
			}
		}
		t, err := Struct(lengths, displs, types)
		p := together(copies)
		for !p.marked && (p.ub-p.lb)%align != 0 {
			p.ub++
		}
		return pair{t, p}, err
	case 7:
		lb, extent := next(40)-20, next(80)-20
		t, err := Resized(o.t, lb, extent)
		return pair{t, plain{o.p.entries, lb, lb + extent, true}}, err
	}
	sizes, subsizes, starts := []int{}, []int{}, []int{}
	for range 1 + next(3) {
		n := 1 + next(4)
		sub := 1 + next(n)
		sizes, subsizes, starts = append(sizes, n), append(subsizes, sub), append(starts, next(n-sub+1))
	}
	t, err := Subarray(sizes, subsizes, starts, o.t)
	var copies []placed
	index := make([]int, len(sizes))
	for done := false; !done; {
		at := 0
		for d := range sizes {
			at = at*sizes[d] + starts[d] + index[d]
		}
		copies = append(copies, placed{at * extent, o.p})
		done = true
		for d := len(sizes) - 1; d >= 0; d-- {
			if index[d]++; index[d] < subsizes[d] {
				done = false
				break
			}
			index[d] = 0
		}
	}
	p := together(copies)
	whole := extent
	for _, n := range sizes {
		whole *= n
	}
	return pair{t, plain{p.entries, 0, whole, true}}, err
}

// check compares everything about the two versions of a type.
func check(o pair, next func(n int) int) error {
	t, p := o.t, o.p
	if lb, extent := t.Extent(); lb != p.lb || extent != p.ub-p.lb {
		return fmt.Errorf("extent %d, %d, want %d, %d", lb, extent, p.lb, p.ub-p.lb)
	}
	if t.Size() != p.size() {
		return fmt.Errorf("size %d, want %d", t.Size(), p.size())
	}
	count := next(4)
	offsets := p.offsets(count)
	lo, hi, ok := t.Span(count)
	if !ok {
		return fmt.Errorf("no span")
	}
	if len(offsets) > 0 {
		if wantLo, wantHi := slices.Min(offsets), slices.Max(offsets)+1; lo != wantLo || hi != wantHi {
			return fmt.Errorf("span of %d items %d, %d, want %d, %d", count, lo, hi, wantLo, wantHi)
		}
	} else if lo != 0 || hi != 0 {
		return fmt.Errorf("span of nothing %d, %d", lo, hi)
	}
	if one := p.offsets(1); len(one) > 0 {
		lb, extent := t.TrueExtent()
		if lb != slices.Min(one) || lb+extent != slices.Max(one)+1 {
			return fmt.Errorf("true extent %d, %d", lb, extent)
		}
	}
	sorted := slices.Clone(offsets)
	slices.Sort(sorted)
	unique := len(slices.Compact(sorted)) == len(offsets)
	for range 2 { // found out, and remembered
		if got := t.Overlaps(count); got == unique {
			return fmt.Errorf("overlaps of %d items: %v", count, got)
		}
	}
	if t.Solid() {
		for i, at := range offsets {
			if at != i {
				return fmt.Errorf("solid, but byte %d is at %d", i, at)
			}
		}
	}
	if err := checkOrder(o, count, len(offsets), next); err != nil {
		return err
	}
	return checkMoves(t, offsets, lo, hi, unique, next)
}

// checkMoves packs and unpacks some part of the items. Where data lies below the
// origin the items are moved up by a type around them.
func checkMoves(t *Type, offsets []int, lo, hi int, unique bool, next func(n int) int) error {
	shift := max(0, -lo)
	up := *moved(t, shift)
	mem := make([]byte, hi+shift)
	for i := range mem {
		mem[i] = byte(i*7 + i>>8)
	}
	from := next(len(offsets) + 1)
	n := next(len(offsets) - from + 1)
	if next(3) == 0 {
		from, n = 0, len(offsets)
	}
	want := make([]byte, n)
	for i := range want {
		want[i] = mem[offsets[from+i]+shift]
	}
	if err := checkRuns(t, offsets[from:from+n], from); err != nil {
		return err
	}
	got := make([]byte, n)
	t.PackAt(got, mem, shift, from)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("pack at %d of %d bytes from %d: %v, want %v", shift, n, from, got, want)
	}
	clear(got)
	up.Pack(got, mem, from)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("pack of %d bytes from %d: %v, want %v", n, from, got, want)
	}
	if !unique {
		return nil // there is no order in which overlapping data is unpacked
	}
	wantMem := slices.Clone(mem)
	for i := range got {
		got[i] = byte(200 - i*3)
		wantMem[offsets[from+i]+shift] = got[i]
	}
	up.Unpack(mem, got, from)
	if !bytes.Equal(mem, wantMem) {
		return fmt.Errorf("unpack of %d bytes from %d: %v, want %v", n, from, mem, wantMem)
	}
	return nil
}

// checkRuns wants the given places of the bytes from position from on, in runs.
func checkRuns(t *Type, offsets []int, from int) error {
	at, longest := 0, 0
	err := t.Runs(from, len(offsets), func(off, n int) error {
		if n < 1 || n > len(offsets)-at {
			return fmt.Errorf("a run of %d bytes, with %d to come", n, len(offsets)-at)
		}
		for i := range n {
			if offsets[at+i] != off+i {
				return fmt.Errorf("byte %d at %d, want %d", at+i, off+i, offsets[at+i])
			}
		}
		at, longest = at+n, max(longest, n)
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("runs of %d bytes from %d: %w", len(offsets), from, err)
	case at != len(offsets):
		return fmt.Errorf("runs of %d bytes from %d hold %d", len(offsets), from, at)
	case t.Solid() && longest != len(offsets):
		return fmt.Errorf("a solid type has a run of %d bytes of %d", longest, len(offsets))
	}
	stop := errors.New("stop")
	if err := t.Runs(from, len(offsets), func(int, int) error { return stop }); len(offsets) > 0 && err != stop {
		return fmt.Errorf("runs go on after an error: %v", err)
	}
	return nil
}

// moved is t with its data moved up, and the same extent.
func moved(t *Type, by int) *Type {
	if t.size == 0 {
		return t
	}
	m := &Type{size: t.size, bounds: t.bounds, shape: t.shape, order: t.order}
	m.shape.off += by
	m.settle()
	return m
}

// checkOrder compares what follows from the order of basic types.
func checkOrder(o pair, count, total int, next func(n int) int) error {
	n := 0
	if total > 0 {
		n = next(total + 1)
	}
	elements, left := 0, n
	hash, all := uint64(0), 0
	for range count {
		for _, e := range o.p.entries {
			if left >= e.basic.Size() {
				elements++
				left -= e.basic.Size()
			} else if left > 0 {
				left = -left // not whole
			}
			hash = hashAdd(hashMul(hash, hashBase), basicHash(e.basic))
			all++
		}
	}
	if got, whole := o.t.Elements(n); got != elements || whole != (left == 0) {
		return fmt.Errorf("elements in %d bytes: %d, %v, want %d, %v", n, got, whole, elements, left == 0)
	}
	if got, want := o.t.Signature(count), (Signature{all, hash}); got != want {
		return fmt.Errorf("signature of %d items %v, want %v", count, got, want)
	}
	uniform := len(o.p.entries) > 0
	for _, e := range o.p.entries {
		uniform = uniform && e.basic == o.p.entries[0].basic
	}
	if b, n, ok := o.t.Uniform(); ok != uniform || ok && (b != o.p.entries[0].basic || n != len(o.p.entries)) {
		return fmt.Errorf("uniform: %v, %d, %v", b, n, ok)
	}
	return nil
}

// grown makes types by choices and checks each.
func grown(next func(n int) int, rounds int) error {
	var all []pair
	for b := range basics {
		all = append(all, pair{Of(b), plainOf(b)})
	}
	for range rounds {
		o, err := grow(all, next)
		if err != nil {
			return fmt.Errorf("constructor: %w", err)
		}
		if err := check(o, next); err != nil {
			return fmt.Errorf("%v: %w", o.t, err)
		}
		if len(o.p.entries) < 300 {
			all = append(all, o)
		}
	}
	return nil
}

func TestRandomTypes(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		if err := grown(rnd.IntN, 60); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzTypes(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add(bytes.Repeat([]byte{5, 1, 7, 2}, 40))
	f.Fuzz(func(t *testing.T, choices []byte) {
		next := func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0])
			choices = choices[1:]
			return c % n
		}
		if err := grown(next, min(20, len(choices)/4)); err != nil {
			t.Error(err)
		}
	})
}
