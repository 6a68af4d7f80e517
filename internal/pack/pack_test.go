package pack

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func TestWhatIsWrittenReadsBack(t *testing.T) {
	numbers := []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64}
	lengths := []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000}
	w := NewWriter(0)
	w.Array(len(numbers))
	for _, n := range numbers {
		w.Uint(n)
	}
	for _, n := range lengths {
		w.Bin(bytes.Repeat([]byte{0xc1}, n))
		w.String(strings.Repeat("x", n))
	}
	r := NewReader(w.Bytes())
	if n := r.Array(); n != len(numbers) {
		t.Errorf("array of %d reads back as %d", len(numbers), n)
	}
	for _, want := range numbers {
		if got := r.Uint(); got != want {
			t.Errorf("number %d reads back as %d", want, got)
		}
	}
	for _, n := range lengths {
		if got := r.Bin(); !bytes.Equal(got, bytes.Repeat([]byte{0xc1}, n)) || cap(got) != n {
			t.Errorf("%d bytes of binary read back as %d of capacity %d", n, len(got), cap(got))
		}
		if got := r.String(); got != strings.Repeat("x", n) {
			t.Errorf("text of %d bytes reads back as %d", n, len(got))
		}
	}
	if err := r.End(); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// What leaves here is msgpack to any other program.
func TestItIsMsgpack(t *testing.T) {
	w := NewWriter(64)
	w.Array(3)
	w.Uint(300)
	w.Bin([]byte{1, 2})
	w.String("host")
	var got []any
	if err := msgpack.Unmarshal(w.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if b, ok := got[1].([]byte); len(got) != 3 || got[0] != uint16(300) || !ok || !slices.Equal(b, []byte{1, 2}) || got[2] != "host" {
		t.Errorf("a general reader finds %#v", got)
	}
}

func TestDamage(t *testing.T) {
	inputs := map[string]string{
		"empty": "", "cut length": "\xc4", "cut binary": "\xc4\x05abc", "4 GiB of binary": "\xc6\xff\xff\xff\xff", "4 Gi elements": "\xdd\xff\xff\xff\xff",
		"nil": "\xc0", "cut array": "\xdc\x00", "never used": "\xc1", "negative": "\xff",
	}
	reads := map[string]func(*Reader){
		"Bin": func(r *Reader) { r.Bin() }, "String": func(r *Reader) { _ = r.String() }, "Array": func(r *Reader) { r.Array() }, "Below": func(r *Reader) { r.Below(1 << 32) },
	}
	for name, in := range inputs {
		for what, read := range reads {
			r := NewReader([]byte(in))
			read(r)
			if name == "nil" && what == "Below" {
				continue // nil is the number 0 to the library
			}
			if !errors.Is(r.End(), ErrDamaged) {
				t.Errorf("%s of %s: %v, want ErrDamaged", what, name, r.End())
			}
			if r.Uint() != 0 || r.Bin() != nil || r.Array() != 0 {
				t.Errorf("%s of %s: more is read after damage", what, name)
			}
		}
	}
	r := NewReader([]byte{1, 2})
	if r.Uint(); r.Err() != nil || !errors.Is(r.End(), ErrDamaged) {
		t.Errorf("a byte too many: %v", r.Err())
	}
}

func FuzzReader(f *testing.F) {
	w := NewWriter(0)
	w.Array(2)
	w.Uint(7)
	w.Bin([]byte("card"))
	f.Add(w.Bytes(), []byte{0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, in, reads []byte) {
		r := NewReader(in)
		for _, k := range reads {
			switch k % 4 {
			case 0:
				if n := r.Array(); n > len(in) {
					t.Fatalf("array of %d in %d bytes", n, len(in))
				}
			case 1:
				r.Uint()
			case 2:
				if b := r.Bin(); len(b) > len(in) {
					t.Fatalf("%d bytes of binary in %d", len(b), len(in))
				}
			case 3:
				r.Below(3)
			}
		}
		if err := r.End(); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}
