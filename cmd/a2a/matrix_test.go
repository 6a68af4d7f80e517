package main

import (
	"slices"
	"testing"
)

func TestRow(t *testing.T) {
	long := make([]int32, 20)
	for i := range long {
		long[i] = int32(i)
	}
	for _, c := range []struct {
		name, how string
		rank      int
		row       []int32
		want      string
	}{
		{"of the original", printFull, 0, []int32{9923, 9245, 755, 8690, 3668, 5887, 91, 5825},
			"Rank 0 | 9923  9245  755   8690  3668  5887  91    5825  |\n"},
		{"one column", printFull, 12, []int32{0}, "Rank 12 | 0     |\n"},
		{"short for head", printHead, 1, long[:16], "Rank 1 | 0     1     2     3     4     5     6     7     8     9     10    11    12    13    14    15    |\n"},
		{"head", printHead, 1, long, "Rank 1 | 0     1     2     3     4     5     6     7     ...   12    13    14    15    16    17    18    19    |\n"},
	} {
		row, omitted := clip(c.row, c.how)
		if got := string(appendRow(nil, c.rank, row, omitted)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	if row, omitted := clip(long, printFull); !slices.Equal(row, long) || omitted != 0 {
		t.Errorf("clip(full) = %v, %d; want the whole row", row, omitted)
	}
}
