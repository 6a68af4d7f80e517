package rdma

import (
	"bytes"
	"testing"
)

// The layouts are those of struct ibv_tmh and struct ibv_rvh, big-endian.
func TestTagHeaders(t *testing.T) {
	h := TMH{Opcode: TMRndv, AppCtx: 0x01020304, Tag: 0x1112131415161718}
	r := RVH{Addr: 0x2122232425262728, RKey: 0x31323334, Length: 0x41424344}
	b := r.Append(h.Append(nil))
	want := []byte{1, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44}
	if !bytes.Equal(b, want) {
		t.Fatalf("got % x, want % x", b, want)
	}
	if got := ParseTMH(b); got != h {
		t.Errorf("ParseTMH: got %+v, want %+v", got, h)
	}
	if got := ParseRVH(b[TMHLen:]); got != r {
		t.Errorf("ParseRVH: got %+v, want %+v", got, r)
	}
}

func TestLayoutLen(t *testing.T) {
	for _, c := range []struct {
		l    MkeyLayout
		want uint64
	}{
		{MkeyLayout{}, 0},
		{MkeyLayout{List: []SGE{{Length: 5}, {Length: 1 << 31}}}, 1<<31 + 5},
		{MkeyLayout{Repeat: 1 << 20, Interleaved: []MkeyPiece{{Count: 4096, Skip: 1}, {Count: 8}}}, 4104 << 20},
	} {
		if got := c.l.Len(); got != c.want {
			t.Errorf("Len of %+v: got %d, want %d", c.l, got, c.want)
		}
	}
}

func TestIncRKey(t *testing.T) {
	for _, c := range [][2]uint32{{0x1234, 0x1235}, {0x12ff, 0x1200}, {0xffffff00, 0xffffff01}} {
		if got := IncRKey(c[0]); got != c[1] {
			t.Errorf("IncRKey(%#x) = %#x, want %#x", c[0], got, c[1])
		}
	}
}
