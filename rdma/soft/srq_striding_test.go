package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// strided makes a shared queue of receives of some strides of 64 bytes.
func (n *node) strided(receives, strides int) *srq {
	n.t.Helper()
	s := must[rdma.SRQ](n.t)(n.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: receives, MaxSGE: 2}, Striding: rdma.StridingRQ{StrideBytes: 64, Strides: strides}})).(*srq)
	n.owned = append(n.owned, s)
	return s
}

// A sender that dies, or gives back, in the middle of a message into a shared receive of strides
// leaves its strides empty, and the receive is given back all the same, by the last
// that is complete or by a completion of no bytes.
func TestStrideClaims(t *testing.T) {
	const dead, owner, other = 0, 1, 2
	for _, c := range []struct {
		name string
		last bool // the claim is of the last strides
		end  func(*node, *node, *ticket)
	}{
		{"told", false, func(o, _ *node, _ *ticket) { o.p.segment.SetDead(dead) }},
		{"told, last", true, func(o, _ *node, _ *ticket) { o.p.segment.SetDead(dead) }},
		{"given back", false, func(_, _ *node, tk *ticket) { tk.giveBack() }},
		{"given back, last", true, func(_, _ *node, tk *ticket) { tk.giveBack() }},
		{"untold", false, func(o, d *node, _ *ticket) {
			o.p.find(d.p.gids[0]).lost.Store(true) // as a look at the process finds
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := nodes(t, 3, Config{})
			o := n[owner]
			s := o.strided(2, 4)
			n[dead].into(o, s)
			toOther := n[other].into(o, s)
			dst := o.alloc(1024, all)
			for id := range uint64(2) {
				if _, err := s.PostRecv([]rdma.RecvWR{{WRID: id, SGL: []rdma.SGE{sge(dst, int(id)*256, 256)}}}); err != nil {
					t.Fatal(err)
				}
			}
			send := func(strides int) {
				post(t, toOther, rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: make([]byte, 64*strides)})
			}
			wants := func(id uint64, bytes uint32, offset uint32, last bool) {
				t.Helper()
				var wc [1]rdma.WCEx
				testenv.Await(t, 10*time.Second, fmt.Sprint("a completion of ", id), func() bool {
					n[other].ctx.Progress() // it may have found no receive, and tries again after a while
					k, err := o.cq.PollEx(wc[:])
					if err != nil {
						t.Fatal(err)
					}
					return k == 1
				})
				if w := wc[0]; w.WRID != id || w.Status != rdma.WCSuccess || w.ByteLen != bytes || w.Offset != offset || (w.Flags&rdma.WCFlagLastStride != 0) != last {
					t.Fatalf("completion %+v, want %d bytes at %d of %d, the last %v", w, bytes, offset, id, last)
				}
			}
			if c.last {
				send(2)
				wants(0, 128, 0, false)
			}
			view := n[dead].p.find(o.p.gids[0])
			peerOf := view.sharedBy(s.index + 1)
			var tk ticket
			if !view.takeStrides(&view.queues[0], peerOf, dead, 128, &tk) {
				t.Fatal("no strides to claim")
			}
			if !c.last {
				send(2)
				wants(0, 128, 128, false)
			}
			send(4)
			wants(1, 256, 0, true)
			c.end(o, n[dead], &tk)
			send(1) // there is none: its owner looks after claims
			offset := uint32(0)
			if c.last {
				offset = 128
			}
			wants(0, 0, offset, true)
			if _, err := s.PostRecv([]rdma.RecvWR{{WRID: 7, SGL: []rdma.SGE{sge(dst, 0, 256)}}}); err != nil {
				t.Fatal(err)
			}
			wants(7, 64, 0, false)
		})
	}
}
