package p2p

import (
	"slices"
	"sort"
)

// contexts is a set of contexts, as runs in rising order that do not touch. Contexts
// are given out in order, so those of communicators that come and go are few runs.
type contexts []contextRun

type contextRun struct{ first, last uint32 }

// search is the first run that ends at or behind a context.
func (s contexts) search(context uint32) int {
	return sort.Search(len(s), func(i int) bool { return s[i].last >= context })
}

func (s contexts) has(context uint32) bool {
	i := s.search(context)
	return i < len(s) && s[i].first <= context
}

func (s *contexts) add(context uint32) {
	runs := *s
	i := runs.search(context)
	if i < len(runs) && runs[i].first <= context {
		return
	}
	below := i > 0 && runs[i-1].last+1 == context
	above := i < len(runs) && runs[i].first-1 == context
	switch {
	case below && above:
		runs[i-1].last = runs[i].last
		*s = slices.Delete(runs, i, i+1)
	case below:
		runs[i-1].last = context
	case above:
		runs[i].first = context
	default:
		*s = slices.Insert(runs, i, contextRun{context, context})
	}
}
