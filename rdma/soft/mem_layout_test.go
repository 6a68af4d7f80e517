package soft

import (
	"encoding/binary"
	"testing"
)

// FuzzWalk walks a layout as it may lie in a peer's arena, whatever is in it: the
// walk ends, and its blocks have the bytes that were asked for or fewer.
func FuzzWalk(f *testing.F) {
	entry := func(start, addr uint64, count, skip uint32) []byte {
		b := binary.LittleEndian.AppendUint64(nil, start)
		b = binary.LittleEndian.AppendUint64(b, addr)
		b = binary.LittleEndian.AppendUint32(b, count)
		b = binary.LittleEndian.AppendUint32(b, skip)
		return append(b, 1, 1, 0, 0, 0, 0, 0, 0)
	}
	f.Add(append(entry(0, 1000, 8, 8), entry(8, 5000, 4, 0)...), uint32(10), uint64(12), uint64(17), uint16(60))
	f.Add(append(entry(7, 1000, 0, 8), entry(0, 5000, 1, 0)...), ^uint32(0), uint64(1), ^uint64(0), uint16(60))
	f.Fuzz(func(t *testing.T, table []byte, repeat uint32, round, off uint64, n uint16) {
		list := make([]piece, len(table)/pieceEntrySize)
		for i := range list {
			b := table[i*pieceEntrySize:]
			list[i] = piece{start: binary.LittleEndian.Uint64(b), addr: binary.LittleEndian.Uint64(b[8:]),
				count: binary.LittleEndian.Uint32(b[16:]), skip: binary.LittleEndian.Uint32(b[20:]), lkey: binary.LittleEndian.Uint32(b[24:])}
		}
		var w walk
		left := uint64(n)
		if !w.begin(layoutHeader{repeat: repeat, round: round}, list, off, left) {
			return
		}
		for left > 0 {
			b, ok := w.next()
			if !ok {
				return
			}
			if b.n == 0 || b.n > left {
				t.Fatalf("a block of %d bytes with %d to go", b.n, left)
			}
			left -= b.n
		}
	})
}
