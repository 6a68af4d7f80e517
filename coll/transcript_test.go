package coll

import (
	"strings"
	"testing"
)

// Plans, to be read.
func TestPlanTranscripts(t *testing.T) {
	cases := []struct {
		call Call
		want string
	}{
		{Call{Kind: Barrier, Algorithm: Dissemination, Rank: 1, Size: 4, Elem: 1}, `
signal 2
take 0
signal 3
take 3
`},
		{Call{Kind: AllToAll, Algorithm: Direct, Rank: 0, Size: 3, Bytes: 8, Elem: 1}, `
send 1: in+8 8
send 2: in+16 8
copy out+0 = in+0 8
await 2
copy out+16 = slot(2)+0 8, release
await 1
copy out+8 = slot(1)+0 8, release
`},
		{Call{Kind: AllToAll, Algorithm: Direct, Rank: 0, Size: 2, Bytes: 100, Elem: 1}, `
expose 1: #0 = out+100 100
copy out+0 = in+0 100
learn 1: #0
put 1: #0+0 = in+100 100, signal
take 1
flush 1
`},
		{Call{Kind: Bcast, Algorithm: Binomial, Rank: 2, Size: 4, Root: 0, Bytes: 80, Elem: 1}, `
expose 0: #0 = out+0 80
take 0
learn 3: #0
put 3: #0+0 = out+0 40, signal
take 0
put 3: #0+40 = out+40 40, signal
flush 3
`},
		{Call{Kind: Bcast, Algorithm: Pull, Rank: 1, Size: 2, Root: 0, Bytes: 80, Elem: 1}, `
expose 0: #0 = out+0 40
learn 0: #0
get 0: out+40 = #0+40 40
flush 0
signal 0
take 0
`},
		{Call{Kind: Bcast, Algorithm: Pull, Rank: 0, Size: 2, Root: 0, Bytes: 80, Elem: 1}, `
expose 1: #0 = out+0 80
learn 1: #0
put 1: #0+0 = out+0 40, signal
take 1
flush 1
`},
		{Call{Kind: Scatter, Algorithm: Pull, Rank: 2, Size: 3, Root: 0, Bytes: 80, Elem: 1}, `
learn 0: #0
get 0: out+0 = #0+0 80
flush 0
signal 0
`},
		{Call{Kind: ExScan, Algorithm: Pull, Rank: 0, Size: 2, Bytes: 32, Elem: 8}, `
expose 1: #0 = in+0 32
learn 1: #1
put 1: #1+0 = in+0 16
flush 1
signal 1
take 1
`},
		{Call{Kind: AllReduce, Algorithm: RecursiveDoubling, Rank: 1, Size: 3, Bytes: 8, Elem: 8}, `
await 0
reduce out+0 = slot(0)+0 op in+0 8, release
send 2: out+0 8
await 2
reduce out+0 = out+0 op slot(2)+0 8, release
send 0: out+0 8
`},
		{Call{Kind: AllReduce, Algorithm: ReduceScatterGather, Rank: 0, Size: 2, Bytes: 48, Elem: 8}, `
expose 1: #0 = tmp+0 24
expose 1: #1 = out+24 24
learn 1: #0
learn 1: #1
put 1: #0+0 = in+24 16, signal
put 1: #0+16 = in+40 8, signal
take 1
reduce out+0 = in+0 op tmp+0 16
put 1: #1+0 = out+0 16, signal
take 1
reduce out+16 = in+16 op tmp+16 8
put 1: #1+16 = out+16 8, signal
take 1
take 1
flush 1
`},
		{Call{Kind: Bcast, Algorithm: Chain, Rank: 1, Size: 3, Root: 0, Bytes: 80, Elem: 1}, `
expose 0: #0 = out+0 80
take 0
learn 2: #0
put 2: #0+0 = out+0 40, signal
take 0
put 2: #0+40 = out+40 40, signal
flush 2
`},
		{Call{Kind: AllReduce, Algorithm: Ring, Rank: 1, Size: 3, Bytes: 96, Elem: 8}, `
expose 0: #0 = out+0 96
learn 2: #0
put 2: #0+0 = in+0 16, signal
take 0
reduce out+64 = out+64 op in+64 16
put 2: #0+16 = in+16 16, signal
take 0
reduce out+80 = out+80 op in+80 16
put 2: #0+64 = out+64 16, signal
take 0
reduce out+32 = out+32 op in+32 16
put 2: #0+80 = out+80 16, signal
take 0
reduce out+48 = out+48 op in+48 16
flush 2
expose 0: #1 = out+0 96
learn 2: #1
put 2: #1+32 = out+32 32, signal
take 0
put 2: #1+0 = out+0 32, signal
take 0
flush 2
`},
		{Call{Kind: ReduceScatter, Algorithm: Ring, Rank: 0, Size: 3, Bytes: 8, Elem: 8}, `
send 1: in+16 8
await 2
reduce tmp+8 = slot(2)+0 op in+8 8, release
send 1: tmp+8 8
await 2
reduce out+0 = slot(2)+0 op in+0 8, release
`},
		{Call{Kind: AllReduce, Algorithm: Binomial, Rank: 1, Size: 3, Bytes: 8, Elem: 8}, `
send 0: in+0 8
await 0
copy out+0 = slot(0)+0 8, release
`},
		{Call{Kind: ReduceScatter, Algorithm: Binomial, Rank: 0, Size: 3, Bytes: 8, Elem: 8}, `
await 1
reduce tmp+0 = in+0 op slot(1)+0 24, release
await 2
reduce tmp+0 = tmp+0 op slot(2)+0 24, release
send 2: tmp+16 8
send 1: tmp+8 8
copy out+0 = tmp+0 8
`},
	}
	for _, c := range cases {
		got := compile(c.call, small).String()
		if got != strings.TrimPrefix(c.want, "\n") {
			t.Errorf("%+v:\ngot\n%swant%s", c.call, got, c.want)
		}
	}
}
