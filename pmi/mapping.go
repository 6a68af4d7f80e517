package pmi

import (
	"slices"
	"strconv"
)

// Mapping is the value of PMI_process_mapping for ranks placed on hostOf[rank]:
// "(vector,(first host, hosts, ranks a host),...)". Neighbouring hosts with
// equally many consecutive ranks share a block. Hosts are numbers from 0; the
// order of their first ranks does not matter.
//
// MPICH begins again at the first block when ranks are left over, as Hydra has
// it do for round-robin placement. Other readers want all blocks, so that is
// used only where these would exceed ValLenMax.
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
