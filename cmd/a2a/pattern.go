package main

// pattern makes the numbers in the blocks: 0..9999, the same for the same seed.
type pattern struct {
	seed uint64
	op   operation
}

// key stands for block to of what rank from sends in a call.
func (p pattern) key(call, from, to int) uint64 {
	k := mix(p.seed + 0x9e3779b97f4a7c15)
	k = mix(k ^ uint64(call))
	k = mix(k ^ uint64(from)<<32 ^ uint64(to))
	return k
}

// value is integer index of a block. It is a counter-based generator (splitmix64's mixing function
// over a key and a counter), so that any block can be made without those before it.
func value(key uint64, index int) int32 {
	return int32(mix(key+uint64(index)*0x9e3779b97f4a7c15) % 10000)
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes what a rank sends in a call; what is over at the end stays as it is, and all of a rank that sends nothing.
func (p pattern) fill(send []int32, call, from, ranks int) {
	if !p.op.sends(from) {
		return
	}
	blocks := p.op.blocks(ranks)
	per := len(send) / blocks
	for to := range blocks {
		key := p.key(call, from, to)
		block := send[to*per : (to+1)*per]
		for i := range block {
			block[i] = value(key, i)
		}
	}
}

// wrong is a place where something else arrived than was sent.
type wrong struct {
	call, block, index int
	got, want          int32
}

// verify compares what arrived at a rank in a call with what was sent to it. The sums of up to 200,000 ranks have room in 32 bits.
func (p pattern) verify(recv []int32, call, at, ranks int) (wrong, bool) {
	blocks := p.op.arriving(ranks)
	per := len(recv) / blocks
	var keys []uint64 // of the blocks that are summed up
	for block := range blocks {
		keys = keys[:0]
		for from, end := p.op.sources(block, ranks); from < end; from++ {
			keys = append(keys, p.key(call, from, p.op.place(at)))
		}
		for i, got := range recv[block*per : (block+1)*per] {
			want := int32(0)
			for _, key := range keys {
				want += value(key, i)
			}
			if got != want {
				return wrong{call, block, i, got, want}, false
			}
		}
	}
	for i, got := range recv[per*blocks:] {
		if got != 0 {
			return wrong{call, blocks, i, got, 0}, false
		}
	}
	return wrong{}, true
}
