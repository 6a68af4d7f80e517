package pmi

import (
	"slices"
	"strconv"
)

// Mapping is the value of PMI_process_mapping for ranks that are placed on hostOf[rank]: "(vector,(first
// host, hosts, ranks per host),...)". Consecutive hosts with the same number of consecutive ranks share
// a block. Hosts are numbered from 0; the order of their first ranks does not matter.
//
// For ranks beyond the last block MPICH starts again at the first one; Hydra uses that for round-robin
// placement. Other readers need all blocks, so Mapping uses it only if they would exceed ValLenMax.
func Mapping(hostOf []int) string {
	m := blocks(hostOf)
	if len(m) <= ValLenMax {
		return m
	}
	for period := 1; period <= len(hostOf)/2; period++ {
		if slices.Equal(hostOf[period:], hostOf[:len(hostOf)-period]) {
			return blocks(hostOf[:period])
		}
	}
	return m
}

func blocks(hostOf []int) string {
	type block struct{ first, hosts, ranks int }
	var blocks []block
	for i := 0; i < len(hostOf); {
		n := 1
		for i+n < len(hostOf) && hostOf[i+n] == hostOf[i] {
			n++
		}
		if k := len(blocks) - 1; k >= 0 && blocks[k].ranks == n && blocks[k].first+blocks[k].hosts == hostOf[i] {
			blocks[k].hosts++
		} else {
			blocks = append(blocks, block{hostOf[i], 1, n})
		}
		i += n
	}
	b := []byte("(vector")
	for _, v := range blocks {
		b = append(b, ",("...)
		b = strconv.AppendInt(b, int64(v.first), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(v.hosts), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(v.ranks), 10)
		b = append(b, ')')
	}
	return string(append(b, ')'))
}
