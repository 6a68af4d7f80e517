// Package nearest finds the name that a mistyped one was probably meant to be.
package nearest

// Name is the entry of names that takes the fewest single-letter changes to
// reach from typed: a letter dropped, added or replaced, or two neighbours
// swapped. It is "" when none is near: more than a third of the letters, and
// more than one, would have to change. The first of equals wins.
func Name(typed string, names []string) string {
	limit := max(1, len(typed)/3)
	best, found := limit+1, ""
	for _, n := range names {
		if d := distance(typed, n); d < best {
			best, found = d, n
		}
	}
	return found
}

// distance is the optimal string alignment distance: Levenshtein's, with the
// swap of two neighbours as one change. len(a) x len(b) steps, bytes.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
