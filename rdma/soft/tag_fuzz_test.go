package soft

import (
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// FuzzParseTagged reads the headers of any message to a queue that matches tags.
func FuzzParseTagged(f *testing.F) {
	tmh := func(op rdma.TMOpcode) []byte { return rdma.TMH{Opcode: op, AppCtx: 5, Tag: 1 << 60}.Append(nil) }
	rvh := rdma.RVH{Addr: 1 << 40, RKey: 7, Length: 1 << 20}
	f.Add(tmh(rdma.TMEager), uint64(100))
	f.Add(rvh.Append(tmh(rdma.TMRndv)), uint64(64))
	f.Add(rvh.Append(tmh(rdma.TMRndv)), uint64(maxRndvHdr+1))
	f.Add(tmh(rdma.TMRndv), uint64(rdma.TMHLen))
	f.Add(tmh(rdma.TMFin), uint64(rdma.TMHLen))
	f.Add([]byte{byte(rdma.TMNoTag)}, uint64(1))
	f.Add([]byte{0xff}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, n uint64) {
		m, ok := parseTagged(b, n)
		if !ok {
			// Refused are: nothing, unknown ones, and headers that are not whole or too long.
			if len(b) >= rdma.TMHLen+rdma.RVHLen && n <= maxRndvHdr && rdma.TMOpcode(b[0]) <= rdma.TMEager {
				t.Errorf("%x of %d bytes is refused", b, n)
			}
			return
		}
		switch {
		case m.op != rdma.TMOpcode(b[0]), m.op > rdma.TMEager:
			t.Errorf("%x is of kind %d", b, m.op)
		case m.op == rdma.TMNoTag:
			if m.tagged {
				t.Errorf("%x has a tag", b)
			}
		case m.tmh != rdma.ParseTMH(b), m.tagged == (m.op == rdma.TMFin):
			t.Errorf("%x is %+v", b, m)
		case m.op == rdma.TMRndv && (m.rvh != rdma.ParseRVH(b[rdma.TMHLen:]) || n > maxRndvHdr):
			t.Errorf("%x of %d bytes is %+v", b, n, m)
		}
	})
}
