package arch

import "testing"

// A hint changes nothing and faults nowhere, however far it reaches.
func TestPrefetchIsAHint(t *testing.T) {
	var line [8]uint64
	for i := range line {
		line[i] = uint64(i)
	}
	for _, lines := range []int{-1, 0, 1, 2, 1 << 12} {
		PrefetchWrite(&line[0], lines)
		PrefetchRead(&line[0], lines)
	}
	PrefetchWrite(nil, 3)
	PrefetchRead(nil, 3)
	for i, v := range line {
		if v != uint64(i) {
			t.Fatalf("word %d is %d after a hint", i, v)
		}
	}
}
