package shm

import (
	"encoding/binary"
	"errors"
	"testing"
)

const testPage = 4096

// goodHeader is a header and the size of its file.
func goodHeader(t testing.TB) ([]byte, int64) {
	t.Helper()
	l, err := Geometry{Ranks: 4, ArenaSize: 16 * testPage, World: 70}.lay(testPage)
	if err != nil {
		t.Fatal(err)
	}
	return l.appendTo(nil), int64(l.total)
}

func TestParseHeader(t *testing.T) {
	put32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[at:], v); return b }
	}
	put64 := func(at int, v uint64) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], v); return b }
	}
	cases := []struct {
		name    string
		change  func([]byte) []byte
		resize  int64
		wantErr bool
	}{
		{name: "as written"},
		{name: "empty", change: func([]byte) []byte { return nil }, wantErr: true},
		{name: "short", change: func(b []byte) []byte { return b[:headerUsed-1] }, wantErr: true},
		{name: "magic", change: put32(0, 0), wantErr: true},
		{name: "version", change: put32(8, 1), wantErr: true},
		{name: "no ranks", change: put32(12, 0), wantErr: true},
		{name: "fewer ranks", change: put32(12, 3), wantErr: true},
		{name: "more ranks", change: put32(12, 5), wantErr: true},
		{name: "absurd ranks", change: put32(12, 0xffffffff), wantErr: true},
		{name: "no arena", change: put64(16, 0), wantErr: true},
		{name: "odd arena", change: put64(16, 16*testPage+8), wantErr: true},
		{name: "larger arena", change: put64(16, 17*testPage), wantErr: true},
		{name: "arena that wraps", change: put64(16, 1<<62), wantErr: true},
		{name: "marks that need another page", change: put32(32, 1<<16), wantErr: true},
		{name: "absurd marks", change: put32(32, 0xffffffff), wantErr: true},
		{name: "other total", change: put64(24, 1), wantErr: true},
		{name: "file is smaller", resize: -testPage, wantErr: true},
		{name: "file is larger", resize: testPage, wantErr: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, size := goodHeader(t)
			if c.change != nil {
				b = c.change(b)
			}
			l, err := parseHeader(b, size+c.resize, testPage)
			if c.wantErr {
				if !errors.Is(err, ErrNotSegment) {
					t.Fatalf("got layout %+v and error %v, want ErrNotSegment", l, err)
				}
				return
			}
			if want := (Geometry{Ranks: 4, ArenaSize: 16 * testPage, World: 70}); err != nil || l.Geometry != want {
				t.Fatalf("got %+v and error %v, want %+v", l.Geometry, err, want)
			}
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	b, size := goodHeader(f)
	f.Add(b, size)
	f.Add(b[:8], size)
	f.Add([]byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		l, err := parseHeader(b, size, testPage)
		if err != nil {
			return
		}
		if l.total != uint64(size) || l.header < uint64(l.marksAt()+8*l.markWords()) ||
			l.arena(l.Ranks-1) < 0 || uint64(l.arena(l.Ranks-1))+l.ArenaSize != uint64(size) {
			t.Errorf("header %x for %d bytes: accepted %+v, which does not fill the file", b, size, l)
		}
	})
}
