package coll

import (
	"bytes"
	"testing"
)

func FuzzReadCard(f *testing.F) {
	f.Add(intro{members: 4, rank: 1, slots: 8, eager: 8192, chunk: 1, piece: 1, addr: 1 << 40, rkey: 7}.bytes())
	f.Add([]byte(introMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := readIntro(b)
		if err == nil && !bytes.Equal(c.bytes(), b) {
			t.Errorf("%x reads as %+v, which writes as %x", b, c, c.bytes())
		}
	})
}

func FuzzReadFault(f *testing.F) {
	f.Add(fault{reason: faultDead, peer: 3, call: summary{kind: AllToAll, algorithm: Direct, bytes: 8, elem: 1}}.bytes())
	f.Add(make([]byte, faultLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < faultLen {
			return
		}
		// Whatever a peer writes there can be printed.
		r := readFault(b)
		if r.call.String() == "" || r.reason.String() == "" {
			t.Errorf("%x has no text", b)
		}
		if again := readFault(r.bytes()); again != r {
			t.Errorf("%+v reads back as %+v", r, again)
		}
	})
}

// Channels of any geometry lie apart, in whole cache lines.
func TestLayout(t *testing.T) {
	for _, eager := range []int{24, 63, 64, 128, 2048, 8192} {
		for _, staging := range []bool{false, true} {
			const members, slots = 5, 8
			l := newLayout(members, slots, eager, staging)
			used := make([]bool, l.size())
			claim := func(what string, at, n int) {
				if at%8 != 0 {
					t.Errorf("eager %d: %s at %d is not aligned", eager, what, at)
				}
				for i := at; i < at+n; i++ {
					if used[i] {
						t.Fatalf("eager %d: %s at %d overlaps", eager, what, at)
					}
					used[i] = true
				}
			}
			for m := range members {
				claim("credit", l.credit(m), 8)
				claim("fault", l.fault(m), leastInline)
				for s := range slots {
					claim("header", l.header(m, s), headerLen)
					claim("payload", l.payload(m, s), eager)
					if staging {
						claim("staging slot", l.stage(m, s), eager)
					}
				}
			}
		}
	}
}
