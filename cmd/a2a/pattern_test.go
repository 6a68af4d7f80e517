package main

import (
	"slices"
	"testing"
)

// transpose is the all-to-all by hand: block k of rank i goes to block i of rank k.
func transpose(send [][]int32, ints int) [][]int32 {
	n := len(send)
	per := ints / n
	recv := make([][]int32, n)
	for k := range recv {
		recv[k] = make([]int32, ints)
		for i := range send {
			copy(recv[k][i*per:(i+1)*per], send[i][k*per:])
		}
	}
	return recv
}

func TestPatternIsWhatArrives(t *testing.T) {
	for _, c := range []struct{ ranks, ints int }{{1, 1}, {2, 2}, {3, 10}, {4, 9}, {7, 70}} {
		p := pattern{seed: 42}
		for call := range 3 {
			send := make([][]int32, c.ranks)
			for r := range send {
				send[r] = make([]int32, c.ints)
				p.fill(send[r], call, r, c.ranks)
			}
			for r, recv := range transpose(send, c.ints) {
				if w, ok := p.verify(recv, call, r, c.ranks); !ok {
					t.Errorf("%d ranks, %d integers, call %d, rank %d: %+v", c.ranks, c.ints, call, r, w)
				}
				for i := range recv {
					recv[i]++
					if w, ok := p.verify(recv, call, r, c.ranks); ok || w.got != recv[i] || w.want != recv[i]-1 {
						t.Errorf("%d ranks, %d integers: a wrong integer %d of rank %d was not found: %+v", c.ranks, c.ints, i, r, w)
					}
					recv[i]--
				}
				if _, ok := p.verify(recv, call+1, r, c.ranks); ok && c.ints > 4 {
					t.Errorf("%d ranks: the data of call %d pass for those of call %d", c.ranks, call, call+1)
				}
			}
		}
	}
}

// collective is each operation by hand, on the rows of all ranks.
func (o operation) collective(send [][]int32) [][]int32 {
	recv := make([][]int32, len(send))
	for k := range recv {
		switch per := len(send[0]) / len(send); o {
		case broadcast:
			recv[k] = slices.Clone(send[0])
		case allReduce:
			recv[k] = make([]int32, len(send[0]))
			for _, row := range send {
				for i, v := range row {
					recv[k][i] += v
				}
			}
		case reduceScatter:
			recv[k] = make([]int32, per)
			for _, row := range send {
				for i := range per {
					recv[k][i] += row[k*per+i]
				}
			}
		case allToAll:
			recv = transpose(send, len(send[0]))
		}
	}
	return recv
}

// What verify expects of an operation is what it makes of what fill wrote; each wrong integer is found.
func TestPatternOfOperations(t *testing.T) {
	for op := range operation(len(operations)) {
		for _, c := range []struct{ ranks, ints int }{{1, 1}, {2, 2}, {3, 10}, {4, 9}, {7, 70}} {
			p := pattern{42, op}
			send := make([][]int32, c.ranks)
			for r := range send {
				send[r] = make([]int32, c.ints)
				p.fill(send[r], 5, r, c.ranks)
				if sent := slices.ContainsFunc(send[r], func(v int32) bool { return v != 0 }); sent != (op != broadcast || r == 0) {
					t.Errorf("%v, %d ranks: rank %d sends %v", op, c.ranks, r, send[r])
				}
			}
			for r, recv := range op.collective(send) {
				if w, ok := p.verify(recv, 5, r, c.ranks); !ok {
					t.Errorf("%v, %d ranks, %d integers, rank %d: %+v", op, c.ranks, c.ints, r, w)
				}
				for i := range recv {
					recv[i]++
					if w, ok := p.verify(recv, 5, r, c.ranks); ok || w.got != recv[i] || w.want != recv[i]-1 {
						t.Errorf("%v, %d ranks, %d integers: a wrong integer %d of rank %d was not found: %+v", op, c.ranks, c.ints, i, r, w)
					}
					recv[i]--
				}
			}
		}
	}
}

func TestPatternRangeAndSeed(t *testing.T) {
	var low, high int32 = 9999, 0
	a, b := make([]int32, 1000), make([]int32, 1000)
	pattern{seed: 1}.fill(a, 0, 0, 4)
	pattern{seed: 2}.fill(b, 0, 0, 4)
	for _, v := range a {
		low, high = min(low, v), max(high, v)
	}
	if low < 0 || high > 9999 || low > 100 || high < 9900 {
		t.Errorf("1000 numbers lie in %d..%d, want them spread over 0..9999", low, high)
	}
	if slices.Equal(a, b) {
		t.Error("two seeds give the same numbers")
	}
	again := make([]int32, 1000)
	if (pattern{seed: 1}).fill(again, 0, 0, 4); !slices.Equal(a, again) {
		t.Error("the same seed gives different numbers")
	}
}

func TestFillLeavesWhatIsOver(t *testing.T) {
	send := []int32{-1, -1, -1, -1, -1, -1, -1, -1, -1}
	if (pattern{}).fill(send, 0, 0, 4); send[8] != -1 || slices.Contains(send[:8], -1) {
		t.Errorf("after fill of 9 integers for 4 ranks: %v, want all but the last set", send)
	}
}
