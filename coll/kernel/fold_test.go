package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
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

// BenchmarkFold runs Fold of four operands and three calls of Func in turn: GB/s of
// the result, and how many times as fast as the calls.
func BenchmarkFold(b *testing.B) {
	for _, typ := range []Type{Float32, Float64, Int32, Float16} {
		for _, n := range []int{4 << 10, 16 << 10, 64 << 10, 256 << 10} {
			b.Run(fmt.Sprintf("%v/%d", typ, n), func(b *testing.B) {
				r, _ := For(typ, Sum)
				in := make([][]byte, 4)
				for i := range in {
					in[i] = bytes.Repeat(ordinary(rand.New(rand.NewPCG(1, uint64(i))), typ), n/r.Elem)
				}
				dst := make([]byte, n)
				var fast, slow time.Duration
				for b.Loop() {
					start := time.Now()
					r.Fold(dst, in)
					fast += time.Since(start)
					start = time.Now()
					r.Func(dst, in[0], in[1])
					r.Func(dst, dst, in[2])
					r.Func(dst, dst, in[3])
					slow += time.Since(start)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(b.N)*float64(n)/fast.Seconds()/1e9, "GB/s")
				b.ReportMetric(slow.Seconds()/fast.Seconds(), "x-calls")
			})
		}
	}
}
