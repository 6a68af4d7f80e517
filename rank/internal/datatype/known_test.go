package datatype

import (
	"errors"
	"reflect"
	"testing"
)

// must is for constructors in tests.
func must(t *Type, err error) *Type {
	if err != nil {
		panic(err)
	}
	return t
}

// The examples that one can work out by hand.
func TestBounds(t *testing.T) {
	float, char, short := Of(Float64), Of(Int8), Of(Int16)
	padded := must(Struct([]int{1, 1}, []int{0, 8}, []*Type{float, char}))
	for _, tt := range []struct {
		t                    *Type
		size, lb, extent     int
		trueLB, trueExtent   int
		solid, overlapsAlone bool
	}{
		{padded, 9, 0, 16, 0, 9, false, false},
		{must(Contiguous(3, padded)), 27, 0, 48, 0, 41, false, false},
		{must(Struct([]int{1, 1}, []int{0, 1}, []*Type{char, short})), 3, 0, 4, 0, 3, false, false},
		{must(Struct([]int{1, 1}, []int{0, 4}, []*Type{Of(Int32), Of(Float32)})), 8, 0, 8, 0, 8, true, false},
		{must(Vector(4, 2, 2, float)), 64, 0, 64, 0, 64, true, false},
		{must(Vector(4, 1, 3, float)), 32, 0, 80, 0, 80, false, false},
		{must(Vector(2, 1, -3, float)), 16, -24, 32, -24, 32, false, false},
		{must(Hvector(2, 1, 4, float)), 16, 0, 12, 0, 12, false, true},
		{must(Indexed([]int{1, 2, 1}, []int{0, 1, 3}, float)), 32, 0, 32, 0, 32, true, false},
		{must(Indexed([]int{2, 1}, []int{1, 0}, float)), 24, 0, 24, 0, 24, false, false},
		{must(Hindexed([]int{1, 0, 1}, []int{8, 400, 24}, float)), 16, 8, 24, 8, 24, false, false},
		{must(Resized(float, -8, 24)), 8, -8, 24, 0, 8, false, false},
		{must(Resized(must(Vector(4, 1, 4, float)), 0, 8)), 32, 0, 8, 0, 104, false, false},
		{must(Struct([]int{1, 1}, []int{0, 16}, []*Type{must(Resized(float, 0, 8)), float})), 16, 0, 8, 0, 24, false, false},
		{must(Struct([]int{1, 1}, []int{0, 16}, []*Type{must(Aligned(must(Contiguous(16, Of(Uint8))), 16)), float})), 24, 0, 32, 0, 24, false, false},
		{must(Subarray([]int{4, 6}, []int{2, 3}, []int{1, 2}, float)), 48, 0, 192, 64, 72, false, false},
		{must(Subarray([]int{4, 6}, []int{4, 6}, []int{0, 0}, float)), 192, 0, 192, 0, 192, true, false},
		{must(Contiguous(0, float)), 0, 0, 0, 0, 0, true, false},
	} {
		lb, extent := tt.t.Extent()
		trueLB, trueExtent := tt.t.TrueExtent()
		if tt.t.Size() != tt.size || lb != tt.lb || extent != tt.extent || trueLB != tt.trueLB || trueExtent != tt.trueExtent {
			t.Errorf("%v: size %d, bounds %d %d, true %d %d; want %d, %d %d, %d %d", tt.t, tt.t.Size(), lb, extent, trueLB, trueExtent,
				tt.size, tt.lb, tt.extent, tt.trueLB, tt.trueExtent)
		}
		if tt.t.Solid() != tt.solid || tt.t.Overlaps(1) != tt.overlapsAlone {
			t.Errorf("%v: solid %v, overlaps %v", tt.t, tt.t.Solid(), tt.t.Overlaps(1))
		}
	}
}

// Columns of a matrix, resized to one element, lie in each other and share nothing.
func TestOverlapsOfColumns(t *testing.T) {
	column := must(Resized(must(Vector(10, 1, 10, Of(Float64))), 0, 8))
	for _, tt := range []struct {
		count int
		want  bool
	}{{10, false}, {11, true}, {3, false}, {40, true}, {10, false}} {
		if got := column.Overlaps(tt.count); got != tt.want {
			t.Errorf("%d columns of 10 overlap: %v", tt.count, got)
		}
	}
}

// What is equal in another order of construction is one shape.
func TestNormalForm(t *testing.T) {
	float := Of(Float64)
	for _, tt := range []struct{ a, b *Type }{
		{must(Vector(3, 2, 2, float)), must(Contiguous(6, float))},
		{must(Indexed([]int{1, 1, 1}, []int{0, 2, 4}, float)), must(Vector(3, 1, 2, float))},
		{must(Contiguous(2, must(Resized(must(Vector(3, 1, 2, float)), 0, 48)))), must(Vector(6, 1, 2, float))},
		{must(Struct([]int{1, 2}, []int{0, 8}, []*Type{float, float})), must(Contiguous(3, float))},
		{must(Subarray([]int{5, 4}, []int{5, 1}, []int{0, 0}, float)), must(Vector(5, 1, 4, float))},
	} {
		if !reflect.DeepEqual(tt.a.shape, tt.b.shape) {
			t.Errorf("%v is %+v, and %v is %+v", tt.a, tt.a.shape, tt.b, tt.b.shape)
		}
		if a, b := tt.a.Signature(2), tt.b.Signature(2); a != b {
			t.Errorf("%v and %v have signatures %v and %v", tt.a, tt.b, a, b)
		}
	}
	if a, b := Of(Int32).Signature(2), must(Struct([]int{1, 1}, []int{0, 4}, []*Type{Of(Int32), Of(Uint32)})).Signature(1); a == b {
		t.Error("int32, int32 and int32, uint32 have one signature")
	}
}

func TestConstructorErrors(t *testing.T) {
	const huge = 1 << 55
	float := Of(Float64)
	far := must(Hindexed([]int{1}, []int{huge}, float))
	for name, f := range map[string]func() (*Type, error){
		"negative count":       func() (*Type, error) { return Contiguous(-1, float) },
		"negative vector":      func() (*Type, error) { return Vector(-1, 1, 1, float) },
		"negative blocklength": func() (*Type, error) { return Vector(1, -1, 1, float) },
		"negative block":       func() (*Type, error) { return Indexed([]int{1, -1}, []int{0, 9}, float) },
		"lengths and displs":   func() (*Type, error) { return Hindexed([]int{1}, []int{0, 9}, float) },
		"no types":             func() (*Type, error) { return Struct([]int{1}, []int{0}, nil) },
		"negative in struct":   func() (*Type, error) { return Struct([]int{-1}, []int{0}, []*Type{float}) },
		"huge count":           func() (*Type, error) { return Contiguous(huge, float) },
		"huge stride":          func() (*Type, error) { return Vector(2, 1, huge, float) },
		"huge vector":          func() (*Type, error) { return Hvector(huge, 1, huge, float) },
		"huge displacement":    func() (*Type, error) { return Indexed([]int{1}, []int{huge}, float) },
		"huge sum":             func() (*Type, error) { return Hindexed([]int{1}, []int{huge}, far) },
		"huge extent":          func() (*Type, error) { return Resized(float, 0, 4*huge) },
		"odd alignment":        func() (*Type, error) { return Aligned(float, 12) },
		"minimum":              func() (*Type, error) { return Resized(float, -1<<63, 0) },
		"subarray outside":     func() (*Type, error) { return Subarray([]int{4}, []int{2}, []int{3}, float) },
		"subarray of nothing":  func() (*Type, error) { return Subarray(nil, nil, nil, float) },
		"subarray of none":     func() (*Type, error) { return Subarray([]int{0}, []int{0}, []int{0}, float) },
		"huge subarray":        func() (*Type, error) { return Subarray([]int{huge, huge}, []int{1, 1}, []int{0, 0}, float) },
	} {
		got, err := f()
		if err == nil {
			t.Errorf("%s: no error, but %v", name, got)
		}
		if name[:4] == "huge" && name != "huge sum" && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Lists of lists must not double in length with each level.
func TestDeepTypesStaySmall(t *testing.T) {
	o := must(Struct([]int{1, 1}, []int{0, 8}, []*Type{Of(Float64), Of(Int8)}))
	for range 20 {
		_, extent := o.Extent()
		o = must(Struct([]int{1, 1}, []int{0, 3 * extent}, []*Type{o, o}))
	}
	if n := len(o.shape.parts); n > 2*spliceMost {
		t.Errorf("%d parts", n)
	}
	if len(o.String()) > 200 {
		t.Errorf("name of %d bytes", len(o.String()))
	}
}

func TestMovesAllocateNothing(t *testing.T) {
	o := must(Contiguous(3, must(Struct([]int{1, 3}, []int{0, 16}, []*Type{must(Vector(2, 1, 2, Of(Int32))), Of(Float64)}))))
	_, hi, _ := o.Span(4)
	mem, packed := make([]byte, hi), make([]byte, 4*o.Size()-7)
	if n := testing.AllocsPerRun(100, func() {
		o.Pack(packed, mem, 3)
		o.Unpack(mem, packed, 3)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
