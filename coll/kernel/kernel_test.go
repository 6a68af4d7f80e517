package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"
)

// want computes one element the slow way, through math/big for integers and
// the widest type for the others.
func want(t *testing.T, kind reflect.Kind, op Op, a, b reflect.Value) any {
	t.Helper()
	typ := a.Type()
	switch {
	case a.CanInt() || a.CanUint():
		x, y := number(a), number(b)
		switch op {
		case Sum:
			x.Add(x, y)
		case Prod:
			x.Mul(x, y)
		case Min:
			if y.Cmp(x) < 0 {
				x = y
			}
		case Max:
			if y.Cmp(x) > 0 {
				x = y
			}
		}
		// Wrap around like the type.
		low := new(big.Int).And(x, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
		return reflect.ValueOf(low).Convert(typ).Interface()
	case a.CanFloat():
		x, y := a.Float(), b.Float()
		r := [ops]float64{x + y, x * y, math.Min(x, y), math.Max(x, y)}[op]
		return reflect.ValueOf(r).Convert(typ).Interface()
	}
	x, y := a.Complex(), b.Complex()
	r := [2]complex128{x + y, x * y}[op]
	return reflect.ValueOf(r).Convert(typ).Interface()
}

func number(v reflect.Value) *big.Int {
	if v.CanInt() {
		return big.NewInt(v.Int())
	}
	return new(big.Int).SetUint64(v.Uint())
}

var types = map[reflect.Kind]reflect.Type{
	reflect.Int: reflect.TypeFor[int](), reflect.Int8: reflect.TypeFor[int8](), reflect.Int16: reflect.TypeFor[int16](),
	reflect.Int32: reflect.TypeFor[int32](), reflect.Int64: reflect.TypeFor[int64](),
	reflect.Uint: reflect.TypeFor[uint](), reflect.Uint8: reflect.TypeFor[uint8](), reflect.Uint16: reflect.TypeFor[uint16](),
	reflect.Uint32: reflect.TypeFor[uint32](), reflect.Uint64: reflect.TypeFor[uint64](), reflect.Uintptr: reflect.TypeFor[uintptr](),
	reflect.Float32: reflect.TypeFor[float32](), reflect.Float64: reflect.TypeFor[float64](),
	reflect.Complex64: reflect.TypeFor[complex64](), reflect.Complex128: reflect.TypeFor[complex128](),
}

// elements draws n numbers: small ones, so that complex products are exact, and
// for integers any.
func elements(rng *rand.Rand, typ reflect.Type, n int) reflect.Value {
	s := reflect.MakeSlice(reflect.SliceOf(typ), n, n)
	for i := range n {
		switch e := s.Index(i); {
		case e.CanInt():
			e.SetInt(int64(rng.Uint64()) >> (64 - 8*typ.Size()))
		case e.CanUint():
			e.SetUint(rng.Uint64() >> (64 - 8*typ.Size()))
		case e.CanFloat():
			e.SetFloat(float64(rng.IntN(2001) - 1000))
		default:
			e.SetComplex(complex(float64(rng.IntN(201)-100), float64(rng.IntN(201)-100)))
		}
	}
	return s
}

func encode(t *testing.T, s reflect.Value) []byte {
	t.Helper()
	var b bytes.Buffer
	v := s.Interface()
	switch x := v.(type) { // encoding/binary wants sizes
	case []int:
		v = convert[int64](x)
	case []uint:
		v = convert[uint64](x)
	case []uintptr:
		v = convert[uint64](x)
	}
	if err := binary.Write(&b, binary.NativeEndian, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func convert[T int64 | uint64, S int | uint | uintptr](s []S) []T {
	r := make([]T, len(s))
	for i, v := range s {
		r[i] = T(v)
	}
	return r
}

func TestEveryTypeAndOperation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for kind, typ := range types {
		for op := range ops {
			r, ok := For(kind, op)
			ordered := kind != reflect.Complex64 && kind != reflect.Complex128
			if ok != (ordered || op <= Prod) {
				t.Errorf("%v of %v: there is one: %v", op, kind, ok)
			}
			if !ok {
				continue
			}
			t.Run(r.Name, func(t *testing.T) {
				if r.Elem != int(typ.Size()) {
					t.Fatalf("element of %d bytes, want %d", r.Elem, typ.Size())
				}
				for _, n := range []int{0, 1, 3, 4, 5, 8, 33} {
					x, y := elements(rng, typ, n), elements(rng, typ, n)
					expected := reflect.MakeSlice(reflect.SliceOf(typ), n, n)
					for i := range n {
						expected.Index(i).Set(reflect.ValueOf(want(t, kind, op, x.Index(i), y.Index(i))))
					}
					a, b, w := encode(t, x), encode(t, y), encode(t, expected)
					for _, at := range []string{"apart", "dst is a", "dst is b"} {
						p, q := append([]byte{}, a...), append([]byte{}, b...)
						dst := map[string][]byte{"apart": make([]byte, len(a)), "dst is a": p, "dst is b": q}[at]
						r.Func(dst, p, q)
						if !bytes.Equal(dst, w) {
							t.Fatalf("%d elements, %s: %v, %v: got %x, want %x", n, at, x, y, dst, w)
						}
					}
				}
			})
		}
	}
}

func TestIDsAreDistinct(t *testing.T) {
	seen := map[uint16]string{0: "none"}
	for kind := range types {
		for op := range ops {
			if r, ok := For(kind, op); ok {
				if other, was := seen[r.ID]; was || r.ID >= UserID {
					t.Errorf("%s has the id %d, which is taken by %q or a user's", r.Name, r.ID, other)
				}
				seen[r.ID] = r.Name
			}
		}
	}
}

type celsius float32

func TestOfNamedType(t *testing.T) {
	r, ok := Of[celsius](Max)
	if !ok || r.Name != "max of float32" {
		t.Errorf("got %q, %v", r.Name, ok)
	}
	if _, ok := Of[complex64](Min); ok {
		t.Error("there is a minimum of complex numbers")
	}
	if _, ok := Of[int](ops); ok {
		t.Error("there is an unknown operation")
	}
	if _, ok := For(reflect.String, Sum); ok {
		t.Error("there is a sum of strings")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = Of[int32](Sum) }); n != 0 {
		t.Errorf("Of allocates %v times", n)
	}
}

func BenchmarkSum(b *testing.B) {
	for _, kind := range []reflect.Kind{reflect.Float32, reflect.Float64, reflect.Int32} {
		for _, n := range []int{8, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%v/%d", kind, n), func(b *testing.B) {
				r, _ := For(kind, Sum)
				dst, x, y := make([]byte, n), make([]byte, n), make([]byte, n)
				b.SetBytes(int64(n))
				for b.Loop() {
					r.Func(dst, x, y)
				}
			})
		}
	}
}
