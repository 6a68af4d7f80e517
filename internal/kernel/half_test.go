package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// Every one of the 65536 values is read as the definition says, and comes back
// when it is rounded. Between it and the next one, the middle and its neighbours
// go where exact arithmetic says.
func TestEveryHalf(t *testing.T) {
	for _, h := range []struct {
		typ  Type
		from func(u uint16) float32
		to   func(float32) uint16
		// quietens tells whether reading makes a NaN quiet.
		quietens bool
	}{
		{Float16, func(u uint16) float32 { return F16(u).Float32() }, func(f float32) uint16 { return uint16(ToF16(f)) }, true},
		{BFloat16, func(u uint16) float32 { return BF16(u).Float32() }, func(f float32) uint16 { return uint16(ToBF16(f)) }, false},
	} {
		f := formats[h.typ]
		rounded := func(x float32) uint16 {
			if math.IsInf(float64(x), 0) {
				return uint16(math.Float32bits(x)>>31<<15 | (1<<f.exponent-1)<<f.fraction)
			}
			return uint16(f.round(new(big.Float).SetFloat64(float64(x))))
		}
		t.Run(h.typ.String(), func(t *testing.T) {
			for i := range 1 << 16 {
				u := uint16(i)
				got, want := h.from(u), f.value(uint64(u))
				if math.IsNaN(want) {
					checkNaN(t, f, u, got, h.to(got), h.quietens)
					continue
				}
				if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
					t.Fatalf("%#04x is read as %v, want %v", u, got, want)
				}
				if back := h.to(got); back != u {
					t.Fatalf("%#04x is %v, which is rounded to %#04x", u, got, back)
				}
				next := f.value(uint64(u + 1))
				if u&0x7fff == (1<<f.exponent-1)<<f.fraction-1 { // the greatest: as if there were one more
					next = math.Copysign(math.Ldexp(1, 1<<(f.exponent-1)), want)
				}
				middle := float32((want + next) / 2) // exact, as both are float32 with few bits
				for _, x := range []float32{middle, math.Nextafter32(middle, 0), math.Nextafter32(middle, float32(math.Copysign(math.Inf(1), want)))} {
					if math.IsNaN(float64(x)) {
						continue // the middle of infinity and a NaN
					}
					if got, want := h.to(x), rounded(x); got != want {
						t.Fatalf("%v (%#08x), beyond %#04x, is rounded to %#04x, want %#04x", x, math.Float32bits(x), u, got, want)
					}
				}
			}
		})
		t.Run(h.typ.String()+" of random bits", func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 100_000 {
				x := math.Float32frombits(rng.Uint32())
				if x == x {
					if got, want := h.to(x), rounded(x); got != want {
						t.Fatalf("%v (%#08x) is rounded to %#04x, want %#04x", x, math.Float32bits(x), got, want)
					}
				} else if got, want := h.to(x), uint16(math.Float32bits(x)>>16&0x8000|(1<<f.exponent-1)<<f.fraction|1<<(f.fraction-1)|math.Float32bits(x)&(1<<23-1)>>(23-f.fraction)); got != want {
					t.Fatalf("NaN %#08x is rounded to %#04x, want %#04x", math.Float32bits(x), got, want)
				}
			}
		})
	}
}

func checkNaN(t *testing.T, f format, u uint16, read float32, back uint16, quietens bool) {
	t.Helper()
	quiet := u | 1<<(f.fraction-1)
	want := uint32(u)>>15<<31 | 0x7f800000 | uint32(u)&(1<<f.fraction-1)<<(23-f.fraction)
	if quietens {
		want |= 1 << 22
	}
	if got := math.Float32bits(read); got != want || back != quiet {
		t.Fatalf("NaN %#04x is read as %#08x and written as %#04x, want %#08x and %#04x", u, got, back, want, quiet)
	}
}
