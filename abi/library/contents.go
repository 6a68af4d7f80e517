//go:build cgo && linux

package main

import "slices"

// A recipe is how a type was made, for MPI_Type_get_envelope and MPI_Type_get_contents.
type recipe struct {
	combiner    int
	ints, longs []int
	types       []*datatype
	fromCounts  bool // by a _c function, whose ints may be no ints
}

func mpiTypeGetEnvelope(f *frame, t *datatype, nints, naddresses, ntypes, combiner ptr) error {
	if t.made.fromCounts {
		return wrong(c_ERR_TYPE, "the type was made by a function with counts of MPI_Count: use MPI_Type_get_envelope_c")
	}
	f.put(nints, len(t.made.ints))
	f.put(naddresses, len(t.made.longs))
	f.put(ntypes, len(t.made.types))
	f.put(combiner, t.made.combiner)
	return nil
}

func mpiTypeGetContents(f *frame, t *datatype, maxInts, maxAddresses, maxTypes int, toInts, toAddresses, toTypes ptr) error {
	m := &t.made
	if t.named {
		return wrong(c_ERR_TYPE, "%s was not made by a function", t.name)
	}
	if m.fromCounts {
		return wrong(c_ERR_TYPE, "the type was made by a function with counts of MPI_Count: use MPI_Type_get_contents_c")
	}
	if maxInts < len(m.ints) || maxAddresses < len(m.longs) || maxTypes < len(m.types) {
		return wrong(c_ERR_ARG, "there are %d ints, %d addresses and %d types, more than the room", len(m.ints), len(m.longs), len(m.types))
	}
	putInts(toInts, maxInts, m.ints)
	copyLongs(toAddresses, m.longs)
	m.putTypes(toTypes)
	return nil
}

// contents are what a _c form tells apart: ints, addresses, and counts where a _c form made the type.
func (m *recipe) contents() (ints, addresses, counts []int) {
	switch {
	case !m.fromCounts:
		return m.ints, m.longs, nil
	case m.combiner == c_COMBINER_SUBARRAY: // dimensions, three lists of counts, order
		end := len(m.ints) - 1
		return []int{m.ints[0], m.ints[end]}, nil, m.ints[1:end]
	case m.combiner == c_COMBINER_DARRAY: // size, rank, dimensions, a list of counts, three of ints, order
		n := m.ints[2]
		return slices.Concat(m.ints[:3], m.ints[3+n:]), nil, m.ints[3 : 3+n]
	}
	return nil, nil, slices.Concat(m.ints, m.longs)
}

func mpiTypeGetEnvelopeC(f *frame, t *datatype, nints, naddresses, ncounts, ntypes, combiner ptr) error {
	ints, addresses, counts := t.made.contents()
	f.putLong(nints, len(ints))
	f.putLong(naddresses, len(addresses))
	f.putLong(ncounts, len(counts))
	f.putLong(ntypes, len(t.made.types))
	f.put(combiner, t.made.combiner)
	return nil
}

func mpiTypeGetContentsC(_ *frame, t *datatype, maxInts, maxAddresses, maxCounts, maxTypes int, toInts, toAddresses, toCounts, toTypes ptr) error {
	if t.named {
		return wrong(c_ERR_TYPE, "%s was not made by a function", t.name)
	}
	ints, addresses, counts := t.made.contents()
	types := t.made.types
	if maxInts < len(ints) || maxAddresses < len(addresses) || maxCounts < len(counts) || maxTypes < len(types) {
		return wrong(c_ERR_ARG, "there are %d ints, %d addresses, %d counts and %d types, more than the room", len(ints), len(addresses), len(counts), len(types))
	}
	putInts(toInts, maxInts, ints)
	copyLongs(toAddresses, addresses)
	copyLongs(toCounts, counts)
	t.made.putTypes(toTypes)
	return nil
}

// putTypes stores handles of the types, which the program frees.
func (m *recipe) putTypes(at ptr) {
	for i, to := 0, handlesAt(at, len(m.types)); i < len(to); i++ {
		to[i] = m.types[i].again()
	}
}

// again is a handle that the program frees: a new one of a type that is not MPI's own.
func (t *datatype) again() uintptr {
	if t.named {
		return t.handle
	}
	fresh := *t
	fresh.attributes = nil
	h, slot := types.enter()
	fresh.handle = h
	*slot = &fresh
	return h
}

func copyLongs(to ptr, from []int) {
	for i, list := 0, longsAt(to, len(from)); i < len(list); i++ {
		list[i] = int64(from[i])
	}
}
