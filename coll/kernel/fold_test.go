package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestFold(t *testing.T) {
	check := func(t *testing.T, r Reduction, element func(*rand.Rand) []byte) {
		rng := rand.New(rand.NewPCG(5, uint64(r.ID)))
		most := 9
		if testing.Short() || r.ID < UserID && r.ID&15 != uint16(Sum) {
			most = 4
		}
		for n := 1; n <= most; n++ {
			for _, count := range []int{0, 7, max(foldBytes/r.Elem, 1) - 1, 2*foldBytes/r.Elem + 3} {
				in := make([][]byte, n)
				for i := range in {
					for range min(count, 200) {
						in[i] = append(in[i], element(rng)...)
					}
					in[i] = bytes.Repeat(in[i], count/200+1)[:count*r.Elem]
				}
				want := bytes.Clone(in[0])
				for _, b := range in[1:] {
					r.Func(want, want, b)
				}
				got := make([]byte, len(want))
				if r.Fold(got, in); !bytes.Equal(got, want) {
					t.Fatalf("%v: %d operands of %d elements differ from calls of Func", r, n, count)
				}
				if r.Fold(in[0], in); !bytes.Equal(in[0], want) {
					t.Fatalf("%v: %d operands of %d elements differ from calls of Func in place", r, n, count)
				}
			}
		}
	}
	each(t, func(t *testing.T, typ Type, op Op) {
		r, _ := For(typ, op)
		check(t, r, func(rng *rand.Rand) []byte { return random(rng, typ) })
	})
	// A function that does not commute, and elements that fill no piece evenly.
	check(t, User("shift", 36, true, func(dst, a, b []byte) {
		for i := range dst {
			dst[i] = a[i]<<1 ^ b[i]
		}
	}), func(rng *rand.Rand) []byte {
		e := make([]byte, 36)
		for i := range e {
			e[i] = byte(rng.Uint32())
		}
		return e
	})
	check(t, User("long", 3*foldBytes, true, func(dst, a, b []byte) {
		for i := range dst {
			dst[i] = 3*a[i] + b[i]
		}
	}), func(rng *rand.Rand) []byte { return bytes.Repeat([]byte{byte(rng.Uint32())}, 3*foldBytes) })
}

func TestFoldAllocatesNothing(t *testing.T) {
	r, _ := For(Float32, Sum)
	in := [][]byte{make([]byte, 40<<10), make([]byte, 40<<10), make([]byte, 40<<10), make([]byte, 40<<10), make([]byte, 40<<10)}
	if n := testing.AllocsPerRun(10, func() { r.Fold(in[0], in) }); n != 0 {
		t.Errorf("Fold allocates %v times", n)
	}
}
