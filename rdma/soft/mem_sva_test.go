package soft

import (
	"encoding/binary"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// FuzzGrants looks up in a table as it may lie in a peer's arena, whatever is in
// it: the search ends, and grants nothing that no line grants.
func FuzzGrants(f *testing.F) {
	line := func(start, end uint64, access uint32) []byte {
		b := binary.LittleEndian.AppendUint64(nil, start)
		b = binary.LittleEndian.AppendUint64(b, end)
		return binary.LittleEndian.AppendUint64(b, uint64(access))
	}
	f.Add(append(line(10, 20, 7), line(20, 30, 2)...), uint64(12), uint64(18))
	f.Add(append(line(20, 10, 7), line(5, ^uint64(0), 7)...), uint64(12), ^uint64(0))
	f.Add(append(line(10, 20, 7), line(10, 20, 7)...), uint64(19), uint64(2))
	f.Fuzz(func(t *testing.T, table []byte, addr, n uint64) {
		list := make([]grant, len(table)/grantSize)
		for i := range list {
			b := table[i*grantSize:]
			list[i] = grant{start: binary.LittleEndian.Uint64(b), end: binary.LittleEndian.Uint64(b[8:]), access: binary.LittleEndian.Uint32(b[16:])}
		}
		if n == 0 || !grants(list, addr, n, rdma.AccessRemoteWrite) {
			return
		}
		holds := func(at uint64) bool {
			for _, g := range list {
				if g.start <= at && at < g.end && g.access&uint32(rdma.AccessRemoteWrite) != 0 {
					return true
				}
			}
			return false
		}
		if !holds(addr) || !holds(addr+n-1) {
			t.Errorf("%d bytes at %#x are granted by %+v", n, addr, list)
		}
	})
}
