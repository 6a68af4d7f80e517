package coll

import "fmt"

// choices are the algorithms of each kind; the first is for whatever the
// selection has no reason to do otherwise.
var choices = [kinds][]Algorithm{
	Barrier:        {Dissemination, Direct, Central},
	Bcast:          {Binomial, Direct, ScatterAllGather, Pull},
	Reduce:         {Binomial, Direct, ReduceScatterGather},
	AllReduce:      {RecursiveDoubling, Direct, ReduceScatterGather},
	AllGather:      {Direct, Bruck, Ring, Pull},
	ReduceScatter:  {Direct},
	AllToAll:       {Direct, Bruck, Pull},
	Gather:         {Direct, Binomial},
	Scatter:        {Direct, Binomial, Pull},
	Scan:           {RecursiveDoubling, Direct, Chain, Pull},
	ExScan:         {RecursiveDoubling, Direct, Chain, Pull},
	ReduceScatterV: {Direct},
	Exchange:       {Direct},
	Fold:           {Direct},
	farewell:       {Direct},
}

// fits tells whether a kind can be done by an algorithm.
func fits(kind Kind, algorithm Algorithm) bool {
	if algorithm == Auto {
		return true
	}
	if kind < kinds {
		for _, a := range choices[kind] {
			if a == algorithm {
				return true
			}
		}
	}
	return false
}

// Explain says which algorithm a call of this team would take, by which protocol
// its data would go, and why. The buffers and the parts of a do not matter.
func (t *Team) Explain(a Args) string {
	if a.Kind == 0 || a.Kind >= farewell || !fits(a.Kind, a.Algorithm) {
		return fmt.Sprintf("%v does not come as %v", a.Kind, a.Algorithm)
	}
	c := Call{Kind: a.Kind, Algorithm: a.Algorithm, Rank: t.rank, Size: t.size, Bytes: a.Bytes}
	algorithm, reason := t.selection.explain(&c)
	if a.Kind == Barrier {
		return fmt.Sprintf("%v on %d ranks: %v (%s)", a.Kind, t.size, algorithm, reason)
	}
	long := "by descriptor"
	if t.tuning.mapped {
		long = "by descriptor, mapped where it is registered"
	}
	if traits[a.Kind].parts {
		return fmt.Sprintf("%v on %d ranks: %v, parts up to %d bytes in messages, longer ones %s (%s)", a.Kind, t.size, algorithm, t.tuning.eager, long, reason)
	}
	way := long
	if a.Bytes <= t.tuning.eager && algorithm != ReduceScatterGather && algorithm != ScatterAllGather && algorithm != Pull {
		way = "in messages"
	}
	return fmt.Sprintf("%v of %d bytes on %d ranks: %v, %s (%s)", a.Kind, a.Bytes, t.size, algorithm, way, reason)
}
