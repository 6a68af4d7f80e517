package p2p

import "testing"

func TestHeaderRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    header
	}{
		{"eager", header{kind: eager, source: 1<<24 - 1, tag: 1<<31 - 1, context: 1<<32 - 1}},
		{"eager of a type", header{kind: eager, tag: 3, typ: 255}},
		{"eagerSync of a type", header{kind: eagerSync, typ: 3, id: 1<<24 - 1}},
		{"announce of a type", header{kind: announce, typ: 128, id: 1, length: 3}},
		{"announce", header{kind: announce, tag: 3, context: 4, id: 5, length: 1 << 40, address: 1<<64 - 1, key: 7}},
		{"finished", header{kind: finished, id: 0xffffff}},
		{"granted", header{kind: granted, id: 0xffffff, length: 1 << 20, address: 1<<64 - 1, key: 7}},
		{"landed", header{kind: landed, tag: 3, context: 4, length: 1 << 40, address: 64, word: 1<<32 - 1}},
		{"landedSync", header{kind: landedSync, tag: 3, context: 4, id: 5, length: 9, address: 64, word: 8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b [announceHeader]byte
			n := tt.h.put(b[:])
			var got header
			if !got.parse(b[:n]) || got != tt.h {
				t.Errorf("got %+v, want %+v", got, tt.h)
			}
			for short := range n {
				if got.parse(b[:short]) {
					t.Errorf("%d of %d bytes pass for a header", short, n)
				}
			}
		})
	}
}

func FuzzHeader(f *testing.F) {
	for _, h := range []header{{kind: eager, tag: 1}, {kind: announce, length: 9}, {kind: granted, length: 9}, {kind: landed, address: 9}, {kind: landedSync, word: 9}, {kind: finished, id: 4}} {
		var b [announceHeader]byte
		f.Add(b[:h.put(b[:])])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h header
		if !h.parse(b) {
			return
		}
		var again [announceHeader]byte
		var back header
		if !back.parse(again[:h.put(again[:])]) {
			t.Errorf("%+v does not come back", h)
		}
	})
}

func TestTable(t *testing.T) {
	var tab table[int]
	a, b := 1, 2
	first, ok := tab.add(&a)
	if !ok || tab.get(first) != &a {
		t.Fatalf("number %#x stands for %v", first, tab.get(first))
	}
	tab.remove(first)
	second, _ := tab.add(&b)
	if second == first || tab.get(first) != nil || tab.get(second) != &b {
		t.Errorf("numbers %#x and %#x: the stale one must stand for nothing", first, second)
	}
	for _, made := range []uint32{0xffffff, 1, 1 << 20} {
		if got := tab.get(made); got != nil {
			t.Errorf("the made-up number %#x stands for %d", made, *got)
		}
	}
	for range 1 << 10 {
		n, ok := tab.add(&a)
		if !ok || n >= indexMask+1 {
			t.Fatalf("number %#x, %v: 24 bits are expected", n, ok)
		}
	}
}
