package coll

import "fmt"

// Thresholds of the selection. The comment of each says what was measured.
const (
	// bruckRanks and bruckBytes: from so many ranks on, blocks up to so many
	// bytes hop with Bruck's all-to-all.
	bruckRanks, bruckBytes = 16, 128
	// doublingBytes: vectors up to it are all-reduced by recursive doubling.
	doublingBytes = defaultEager
	// binomialBytes: vectors up to it are reduced along a binomial tree.
	binomialBytes = 16 << 10
	// gatherRanks: from so many ranks on an all-gather takes Bruck's way for
	// small blocks and the ring for large ones.
	gatherRanks = 16
)

// choices are the algorithms of each kind; the first is for whatever the
// selection has no reason to do otherwise.
var choices = [kinds][]Algorithm{
	Barrier:       {Dissemination},
	Bcast:         {Binomial},
	Reduce:        {Binomial, ReduceScatterGather},
	AllReduce:     {RecursiveDoubling, ReduceScatterGather},
	AllGather:     {Direct, Bruck, Ring},
	ReduceScatter: {Direct},
	AllToAll:      {Direct, Bruck},
	farewell:      {Direct},
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

// A why is the reason of a selection.
type why uint8

const (
	whyAsked why = iota
	whyOnly
	whySmall
	whyLarge
	whyFewRanks
	whyManySmall
	whyManyLarge
	whys
)

var whyText = [whys]string{
	whyAsked:     "asked for",
	whyOnly:      "the only one",
	whySmall:     "few bytes: fewest steps",
	whyLarge:     "many bytes: fewest bytes",
	whyFewRanks:  "few ranks: one step",
	whyManySmall: "many ranks, few bytes: fewest messages",
	whyManyLarge: "many ranks, many bytes: only neighbours talk",
}

// selectAlgorithm names the algorithm of a call. It depends on what is the same
// in all members only.
func selectAlgorithm(c *Call, t tuning) (Algorithm, why) {
	if c.Algorithm != Auto {
		return c.Algorithm, whyAsked
	}
	switch c.Kind {
	case AllToAll:
		if c.Size >= bruckRanks && c.Bytes <= bruckBytes {
			return Bruck, whyManySmall
		}
		if c.Bytes > t.eager {
			return Direct, whyLarge
		}
		return Direct, whyFewRanks
	case AllReduce:
		if c.Bytes <= min(doublingBytes, t.eager) {
			return RecursiveDoubling, whySmall
		}
		return ReduceScatterGather, whyLarge
	case Reduce:
		if c.Bytes <= binomialBytes {
			return Binomial, whySmall
		}
		return ReduceScatterGather, whyLarge
	case AllGather:
		if c.Size < gatherRanks {
			return Direct, whyFewRanks
		}
		if c.Bytes <= t.eager {
			return Bruck, whyManySmall
		}
		return Ring, whyManyLarge
	}
	return choices[c.Kind][0], whyOnly
}

// Explain says which algorithm a call of this team would take, and why. Rank,
// Size and Elem of the call are the team's own.
func (t *Team) Explain(c Call) string {
	if c.Kind == 0 || c.Kind >= kinds || !fits(c.Kind, c.Algorithm) {
		return fmt.Sprintf("%v does not come as %v", c.Kind, c.Algorithm)
	}
	c.Rank, c.Size = t.rank, t.size
	if c.Algorithm == Auto {
		c.Algorithm = t.selection[c.Kind]
	}
	algorithm, reason := selectAlgorithm(&c, t.tuning)
	way := "by descriptor"
	if c.Bytes <= t.tuning.eager {
		way = "in messages"
	}
	return fmt.Sprintf("%v of %d bytes on %d ranks: %v, %s (%s)", c.Kind, c.Bytes, c.Size, algorithm, way, whyText[reason])
}
