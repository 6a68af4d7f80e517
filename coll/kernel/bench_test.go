package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkReduce runs what For gives and the reference in turn: GB/s of the
// result, and how many times as fast as the reference.
func BenchmarkReduce(b *testing.B) {
	for typ := range types {
		for op := range NoOp - 1 {
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
					calls := max(1, 64<<10/n)
					run := func(f Func) time.Duration {
						start := time.Now()
						for range calls {
							f(dst, x, y)
						}
						return time.Since(start)
					}
					var fast, slow time.Duration
					for b.Loop() {
						fast += run(r.Func)
						slow += run(reference[typ][op])
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(fast.Seconds()*1e9/float64(b.N*calls), "ns/call")
					b.ReportMetric(float64(b.N)*float64(calls)*float64(n)/fast.Seconds()/1e9, "GB/s")
					b.ReportMetric(slow.Seconds()/fast.Seconds(), "x-reference")
				})
			}
		}
	}
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
