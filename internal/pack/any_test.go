package pack

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
)

type sample struct {
	Name  string
	Data  []byte
	Sizes map[string]int
	When  time.Time
	Parts []sample
	Any   any
}

func TestMarshalOfAnyReadsBack(t *testing.T) {
	want := sample{"a", []byte{1, 2}, map[string]int{"x": -70000, "y": 3}, time.Unix(5, 6), []sample{{Name: string(make([]byte, 70000))}}, 1.5}
	for i := range 40 {
		want.Parts = append(want.Parts, sample{Data: make([]byte, 1<<(i%17))})
	}
	b, err := Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got sample
	if err := Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != want.Name || !got.When.Equal(want.When) || !reflect.DeepEqual(got.Sizes, want.Sizes) || len(got.Parts) != len(want.Parts) || got.Any != want.Any {
		t.Errorf("%.200v reads back as %.200v", want, got)
	}
	for n := range b[:500] {
		if err := Unmarshal(b[:n], new(sample)); !errors.Is(err, ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v, want %v", n, len(b), err, ErrDamaged)
		}
	}
}

func TestUnmarshalRefusesDamage(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":            {},
		"no code":            {0xc1},
		"two values":         {1, 2},
		"4 G values claimed": {0xdd, 0xff, 0xff, 0xff, 0xff, 1},
		"4 G pairs claimed":  {0xdf, 0xff, 0xff, 0xff, 0xff, 1, 1},
		"4 GB claimed":       {0xc6, 0xff, 0xff, 0xff, 0xff, 1},
		"nested too deep":    append(bytes.Repeat([]byte{0x91}, 1<<20), 1),
	} {
		var v any
		if err := Unmarshal(b, &v); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want %v", name, err, ErrDamaged)
		}
	}
}

// A nil where a struct is expected that decodes itself is an error.
func TestUnmarshalOfNilIntoATime(t *testing.T) {
	b, err := Marshal(map[string]any{"At": nil})
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ At time.Time }
	if err := Unmarshal(b, &v); err == nil || !v.At.IsZero() {
		t.Errorf("%v, error %v; want an error", v.At, err)
	}
}

// Foreign bytes are a value or an error.
func FuzzUnmarshal(f *testing.F) {
	for _, v := range []any{nil, true, -1, 1 << 40, 1.5, "text", []byte("bytes"), []any{1, "x"}, map[string]any{"k": []int{1}}, time.Unix(1, 2)} {
		b, err := Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		var v any
		_ = Unmarshal(b, &v)
		var s sample
		_ = Unmarshal(b, &s)
	})
}
