package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkReduce runs what For gives and the reference in turn.
func BenchmarkReduce(b *testing.B) {
	for typ := range types {
		for op := range Replace {
			r, ok := For(typ, op)
			if !ok {
				continue
			}
			for _, n := range []int{8, 4 << 10, 16 << 10, 64 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("%v/%v/%d", typ, op, n), func(b *testing.B) {
					dst, x, y := make([]byte, n), make([]byte, n), make([]byte, n)
					rng := rand.New(rand.NewPCG(1, 2))
					for i := 0; i+r.Elem <= n; i += r.Elem {
						copy(x[i:], ordinary(rng, typ))
						copy(y[i:], ordinary(rng, typ))
					}
					calls := max(1, 16<<10/n)
					against(b, n*calls, func() {
						for range calls {
							r.Func(dst, x, y)
						}
					}, func() {
						for range calls {
							reference[typ][op](dst, x, y)
						}
					})
				})
			}
		}
	}
}

// against runs f and other in turn, and reports the gigabytes of result that f
// makes in a second and how many times as fast as other it is: medians.
func against(b *testing.B, bytes int, f, other func()) {
	var fast, slow []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		middle := time.Now()
		other()
		fast, slow = append(fast, middle.Sub(start)), append(slow, time.Since(middle))
	}
	slices.Sort(fast)
	slices.Sort(slow)
	median := fast[len(fast)/2].Seconds()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bytes)/median/1e9, "GB/s")
	b.ReportMetric(slow[len(slow)/2].Seconds()/median, "x-other")
}

// ordinary draws a number between 1 and 2 where numbers of all bits would be
// mostly NaNs and subnormal ones.
func ordinary(rng *rand.Rand, t Type) []byte {
	parts := map[Type][]Type{Complex64: {Float32, Float32}, Complex128: {Float64, Float64},
		FloatInt: {Float32, Int32}, DoubleInt: {Float64, Int64}, LongInt: {Int64, Int64}, TwoInt: {Int32, Int32}, ShortInt: {Int32, Int32}}[t]
	if parts == nil {
		parts = []Type{t}
	}
	var e []byte
	for _, part := range parts {
		u := rng.Uint64()
		if f, is := formats[part]; is {
			u = (1<<(f.exponent-1)-1)<<f.fraction | u&(1<<f.fraction-1)
		}
		e = append(e, encode(part.Size(), u)...)
	}
	return e
}
