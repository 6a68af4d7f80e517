package kernel

import (
	"golang.org/x/sys/cpu"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// vectorized is the assembly for an operation on a type, nil where there is
// none that this processor has. The race detector sees no assembly, so that its
// builds go without.
func vectorized(t Type, op Op) Func {
	if !cpu.X86.HasAVX2 || t == Float16 && !cpu.X86.HasF16C || arch.RaceEnabled {
		return nil
	}
	return avx2[t][op]
}

// avx2 has everything but what only copies.
var avx2 = [types][ops]Func{
	Bool: {LAnd: and8AVX2, LOr: or8AVX2, LXor: xor8AVX2},

	Int8: {Sum: sumInt8AVX2, Prod: prodInt8AVX2, Min: minInt8AVX2, Max: maxInt8AVX2,
		LAnd: and8AVX2, LOr: or8AVX2, LXor: xor8AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Int16: {Sum: sumInt16AVX2, Prod: prodInt16AVX2, Min: minInt16AVX2, Max: maxInt16AVX2,
		LAnd: and16AVX2, LOr: or16AVX2, LXor: xor16AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Int32: {Sum: sumInt32AVX2, Prod: prodInt32AVX2, Min: minInt32AVX2, Max: maxInt32AVX2,
		LAnd: and32AVX2, LOr: or32AVX2, LXor: xor32AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Int64: {Sum: sumInt64AVX2, Prod: prodInt64AVX2, Min: minInt64AVX2, Max: maxInt64AVX2,
		LAnd: and64AVX2, LOr: or64AVX2, LXor: xor64AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Uint8: {Sum: sumInt8AVX2, Prod: prodInt8AVX2, Min: minUint8AVX2, Max: maxUint8AVX2,
		LAnd: and8AVX2, LOr: or8AVX2, LXor: xor8AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Uint16: {Sum: sumInt16AVX2, Prod: prodInt16AVX2, Min: minUint16AVX2, Max: maxUint16AVX2,
		LAnd: and16AVX2, LOr: or16AVX2, LXor: xor16AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Uint32: {Sum: sumInt32AVX2, Prod: prodInt32AVX2, Min: minUint32AVX2, Max: maxUint32AVX2,
		LAnd: and32AVX2, LOr: or32AVX2, LXor: xor32AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},
	Uint64: {Sum: sumInt64AVX2, Prod: prodInt64AVX2, Min: minUint64AVX2, Max: maxUint64AVX2,
		LAnd: and64AVX2, LOr: or64AVX2, LXor: xor64AVX2, BAnd: bitAndAVX2, BOr: bitOrAVX2, BXor: bitXorAVX2},

	Float16:  {Sum: sumF16AVX2, Prod: prodF16AVX2, Min: minF16AVX2, Max: maxF16AVX2},
	BFloat16: {Sum: sumBF16AVX2, Prod: prodBF16AVX2, Min: minBF16AVX2, Max: maxBF16AVX2},
	Float32:  {Sum: sumFloat32AVX2, Prod: prodFloat32AVX2, Min: minFloat32AVX2, Max: maxFloat32AVX2},
	Float64:  {Sum: sumFloat64AVX2, Prod: prodFloat64AVX2, Min: minFloat64AVX2, Max: maxFloat64AVX2},

	Complex64:  {Sum: sumFloat32AVX2, Prod: prodComplex64AVX2},
	Complex128: {Sum: sumFloat64AVX2, Prod: prodComplex128AVX2},

	FloatInt:  {MinLoc: minLocFloatIntAVX2, MaxLoc: maxLocFloatIntAVX2},
	DoubleInt: {MinLoc: minLocDoubleIntAVX2, MaxLoc: maxLocDoubleIntAVX2},
	LongInt:   {MinLoc: minLocLongIntAVX2, MaxLoc: maxLocLongIntAVX2},
	TwoInt:    {MinLoc: minLocTwoIntAVX2, MaxLoc: maxLocTwoIntAVX2},
	ShortInt:  {MinLoc: minLocShortIntAVX2, MaxLoc: maxLocShortIntAVX2},
}
