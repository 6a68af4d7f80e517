package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// each runs f for every reduction that there is.
func each(t *testing.T, f func(t *testing.T, typ Type, op Op)) {
	for typ := range types {
		for op := range ops {
			if reference[typ][op] != nil {
				t.Run(NameOf(uint16(typ)<<4|uint16(op)), func(t *testing.T) { f(t, typ, op) })
			}
		}
	}
}

func TestEveryElement(t *testing.T) {
	each(t, func(t *testing.T, typ Type, op Op) {
		rng := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		const n = 2000
		var a, b, want []byte
		for range n {
			x, y := random(rng, typ), random(rng, typ)
			if rng.IntN(8) == 0 {
				y = x
			}
			a, b, want = append(a, x...), append(b, y...), append(want, obvious(typ, op, x, y)...)
		}
		r, _ := For(typ, op)
		for name, f := range map[string]Func{"reference": reference[typ][op], "assembly, if any": r.Func} {
			got := make([]byte, len(a))
			f(got, a, b)
			for i := 0; i < len(got); i += r.Elem {
				if g, w := got[i:i+r.Elem], want[i:i+r.Elem]; !bytes.Equal(g, w) {
					t.Fatalf("%s: %x, %x: got %x, want %x", name, a[i:i+r.Elem], b[i:i+r.Elem], g, w)
				}
			}
		}
	})
}

// Where an element stands changes nothing: every length, every misalignment,
// and a destination that is an operand.
func TestEveryLengthAndAlignment(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 13
	}
	each(t, func(t *testing.T, typ Type, op Op) {
		rng := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		r, _ := For(typ, op)
		for n := range 131 {
			a, b, want := make([]byte, n*r.Elem), make([]byte, n*r.Elem), make([]byte, n*r.Elem)
			for i := 0; i < len(a); i += r.Elem {
				copy(a[i:], random(rng, typ))
				copy(b[i:], random(rng, typ))
			}
			reference[typ][op](want, a, b)
			for shift := 0; shift < vectorBytes; shift += step {
				x, y := unaligned(a, shift), unaligned(b, rng.IntN(vectorBytes))
				d, where := unaligned(make([]byte, len(a)), rng.IntN(vectorBytes)), "apart"
				switch (n + shift) % 3 {
				case 1:
					d, where = x, "dst is a"
				case 2:
					d, where = y, "dst is b"
				}
				r.Func(d, x, y)
				if !bytes.Equal(d, want) {
					t.Fatalf("%d elements at %d, %s: %x, %x: got %x, want %x", n, shift, where, a, b, d, want)
				}
				for _, s := range [][]byte{d, x, y} {
					checkEdges(t, s)
				}
			}
		}
	})
}

// vectorBytes is at least as long as a vector register.
const vectorBytes = 64

const edge = 0xa5

// unaligned copies s to shift bytes after the start of an allocation, which is aligned,
// with an edge behind it.
func unaligned(s []byte, shift int) []byte {
	room := bytes.Repeat([]byte{edge}, len(s)+2*vectorBytes)
	copy(room[shift:], s)
	return room[shift : shift+len(s) : len(room)]
}

func checkEdges(t *testing.T, s []byte) {
	t.Helper()
	for i, c := range s[len(s):cap(s)] {
		if c != edge {
			t.Fatalf("byte %d behind a vector of %d bytes was written", i, len(s))
		}
	}
}

func TestPairsInPlace(t *testing.T) {
	for typ := FloatInt; typ <= ShortInt; typ++ {
		for _, op := range []Op{MinLoc, MaxLoc} {
			rng := rand.New(rand.NewPCG(3, uint64(typ)))
			r, _ := For(typ, op)
			for range 1000 {
				x, y := random(rng, typ), random(rng, typ)
				want := obvious(typ, op, x, y)
				inA, inB := bytes.Clone(x), bytes.Clone(y)
				r.Func(inA, inA, y)
				r.Func(inB, x, inB)
				if !bytes.Equal(inA, want) || !bytes.Equal(inB, want) {
					t.Fatalf("%v of %x, %x: got %x in a, %x in b, want %x", r, x, y, inA, inB, want)
				}
			}
		}
	}
}

func TestShortOperandPanics(t *testing.T) {
	each(t, func(t *testing.T, typ Type, op Op) {
		r, _ := For(typ, op)
		e := r.Elem
		long := make([]byte, 40*e)
		for _, o := range [][2][]byte{{long[:39*e], long}, {long, long[:39*e]}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("operands of %d and %d bytes for 40 elements of %d: no panic", len(o[0]), len(o[1]), e)
					}
				}()
				r.Func(make([]byte, 40*e), o[0], o[1])
			}()
		}
	})
}

func TestWhatThereIs(t *testing.T) {
	integers := []Type{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64}
	floats := []Type{Float16, BFloat16, Float32, Float64}
	complexes := []Type{Complex64, Complex128}
	pairs := []Type{FloatInt, DoubleInt, LongInt, TwoInt, ShortInt}
	want := map[string]bool{}
	for _, row := range []struct {
		types [][]Type
		ops   []Op
	}{
		{[][]Type{integers, floats, complexes}, []Op{Sum, Prod}},
		{[][]Type{integers, floats}, []Op{Min, Max}},
		{[][]Type{integers, {Bool}}, []Op{LAnd, LOr, LXor}},
		{[][]Type{integers}, []Op{BAnd, BOr, BXor}},
		{[][]Type{pairs}, []Op{MinLoc, MaxLoc}},
		{[][]Type{integers, floats, complexes, pairs, {Bool}}, []Op{Replace, NoOp}},
	} {
		for _, list := range row.types {
			for _, typ := range list {
				for _, op := range row.ops {
					want[op.String()+" of "+typ.String()] = true
				}
			}
		}
	}
	seen := map[uint16]string{0: "none"}
	for typ := range types + 2 {
		for op := range ops + 2 {
			name := op.String() + " of " + typ.String()
			r, ok := For(typ, op)
			if ok != want[name] {
				t.Errorf("%s: there is one: %v", name, ok)
			}
			if !ok {
				continue
			}
			if other, was := seen[r.ID]; was || r.ID >= UserID {
				t.Errorf("%s has the id %d, which is taken by %q or a user's", name, r.ID, other)
			}
			seen[r.ID] = name
			if NameOf(r.ID) != name || r.String() != name {
				t.Errorf("%s calls itself %q and its id %q", name, r, NameOf(r.ID))
			}
			if r.Ordered != (op == Replace || op == NoOp) {
				t.Errorf("%s: ordered: %v", name, r.Ordered)
			}
		}
	}
	for _, id := range []uint16{0, 15, uint16(types) << 4, uint16(Bool)<<4 | uint16(Sum), uint16(Int8)<<4 | uint16(ops), UserID, 1<<16 - 1} {
		if got, want := NameOf(id), fmt.Sprintf("operation %d", id); got != want {
			t.Errorf("id %d is called %q, want %q", id, got, want)
		}
	}
}

func TestUser(t *testing.T) {
	called := 0
	r := User("matrix product", 36, true, func(dst, a, b []byte) { called++ })
	if r.Func(nil, nil, nil); called != 1 || r.Elem != 36 || !r.Ordered || r.String() != "matrix product" {
		t.Errorf("got %+v, called %d times", r, called)
	}
	seen := map[uint16]bool{}
	for _, r := range []Reduction{r, User("matrix product", 36, false, r.Func), User("matrix product", 64, true, r.Func), User("quaternion product", 36, true, r.Func)} {
		if r.ID < UserID || seen[r.ID] {
			t.Errorf("%+v: the id is another's", r)
		}
		seen[r.ID] = true
	}
	if again := User("matrix product", 36, true, nil); again.ID != r.ID {
		t.Errorf("ids %d and %d of the same operation", r.ID, again.ID)
	}
}

type celsius float32

func TestTypes(t *testing.T) {
	check := func(ok bool, got, want Type, size uintptr) {
		t.Helper()
		if !ok || got != want || got.Size() != int(size) {
			t.Errorf("got %v of %d bytes, %v, want %v of %d", got, got.Size(), ok, want, size)
		}
	}
	one[celsius](check, Float32)
	one[bool](check, Bool)
	one[int16](check, Int16)
	one[int](check, intType)
	one[uint](check, uintType)
	one[uintptr](check, uintType)
	one[uint8](check, Uint8)
	one[complex128](check, Complex128)
	one[F16](check, Float16)
	one[BF16](check, BFloat16)
	one[Pair[float32]](check, FloatInt)
	one[Pair[float64]](check, DoubleInt)
	one[Pair[int64]](check, LongInt)
	one[Pair[int32]](check, TwoInt)
	one[Pair[int16]](check, ShortInt)
	for kind := range reflect.UnsafePointer + 2 {
		if typ, ok := TypeOf(kind); ok && typ.Size() == 0 || !ok && kind > 0 && kind <= reflect.Complex128 {
			t.Errorf("%v: got %v, %v", kind, typ, ok)
		}
	}
	if typ, ok := TypeFor[string](); ok {
		t.Errorf("string is %v", typ)
	}
	if n := testing.AllocsPerRun(100, func() {
		typ, _ := TypeFor[Pair[int64]]()
		_, _ = For(typ, MinLoc)
	}); n != 0 {
		t.Errorf("TypeFor and For allocate %v times", n)
	}
}

func one[T any](check func(ok bool, got, want Type, size uintptr), want Type) {
	got, ok := TypeFor[T]()
	check(ok, got, want, reflect.TypeFor[T]().Size())
}
