package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// tagged makes a queue with tags, which completes in the node's queue.
func (n *node) tagged(receives, tags int) *srq {
	n.t.Helper()
	s := must[rdma.SRQ](n.t)(n.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: receives, MaxSGE: 2}, Type: rdma.SRQTagMatching, CQ: n.cq, MaxTags: tags, MaxOps: 64})).(*srq)
	n.owned = append(n.owned, s)
	return s
}

// op does one operation that is signaled, and gives its completion.
func (s *srq) op(n *node, wr rdma.OpsWR) (rdma.WC, uint32) {
	n.t.Helper()
	wr.WRID, wr.Flags = 1<<40, wr.Flags|rdma.SendSignaled
	list := []rdma.OpsWR{wr}
	if _, err := s.PostOps(list); err != nil {
		n.t.Fatal(err)
	}
	wc := n.poll(1)[0]
	if wc.WRID != 1<<40 {
		n.t.Fatalf("before an operation: %+v", wc)
	}
	return wc, list[0].Handle
}

func (s *srq) addTag(n *node, tag uint64, mr rdma.MR) uint32 {
	n.t.Helper()
	wc, handle := s.op(n, rdma.OpsWR{Opcode: rdma.OpAdd, RecvWRID: tag, Tag: tag, Mask: ^uint64(0), SGL: []rdma.SGE{sge(mr, int(tag)*64, 64)}})
	if wc.Status != rdma.WCSuccess || wc.Flags&rdma.WCFlagTMSyncReq != 0 {
		n.t.Fatalf("entry %d: %+v", tag, wc)
	}
	return handle
}

func eager(tag uint64) rdma.SendWR {
	return rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: append(rdma.TMH{Opcode: rdma.TMEager, Tag: tag}.Append(nil), "payload."...)}
}

// A claimant stands still somewhere between its decision and the end of its message.
func TestTagClaims(t *testing.T) {
	const dead, owner, other = 0, 1, 2
	const match, valid = rdma.WCFlagTMMatch, rdma.WCFlagTMDataValid
	type scene struct {
		*testing.T
		n    []*node
		o    *node
		s    *srq
		dst  rdma.MR
		from *queuePair // of the other sender
		view *peer      // of the claimant that stands still
		tk   ticket
		seen uint64 // the state of the first entry before
	}
	// Where the claimant stands still.
	moments := map[string]func(*scene){
		"decided": func(c *scene) {
			var v tagView
			c.view.view(c.view.sharedBy(c.s.index+1), &v)
			n, old, _ := v.next()
			i, ok := v.match(1)
			if !ok || !atomic.CompareAndSwapUint64(v.word(n), old, logWord(n, logMatch, i, dead)) {
				c.Fatal("no decision")
			}
		},
		"without its header": func(c *scene) {
			claimTag(c, c.view, &c.tk, c.s, dead, 1)
			atomic.StoreUint64(c.tk.claim, c.tk.word)
		},
		"in its payload": func(c *scene) { claimTag(c, c.view, &c.tk, c.s, dead, 1) },
		"unexpected":     func(c *scene) { claimTag(c, c.view, &c.tk, c.s, dead, 99) },
		"undecided receive": func(c *scene) {
			if _, ok := c.view.take(c.view.sharedBy(c.s.index+1), dead); !ok {
				c.Fatal("no receive")
			}
		},
	}
	begin := func(t *testing.T, moment string) *scene {
		n := nodes(t, 3, Config{})
		c := &scene{T: t, n: n, o: n[owner]}
		c.s = c.o.tagged(4, 4)
		n[dead].into(c.o, c.s)
		c.from = n[other].into(c.o, c.s)
		c.dst = c.o.alloc(4096, all)
		for id := range uint64(2) {
			if _, err := c.s.PostRecv([]rdma.RecvWR{{WRID: 100 + id, SGL: []rdma.SGE{sge(c.dst, 1024+int(id)*64, 64)}}}); err != nil {
				t.Fatal(err)
			}
		}
		c.s.addTag(c.o, 1, c.dst)
		c.s.addTag(c.o, 2, c.dst)
		c.view = n[dead].p.find(c.o.p.gids[0])
		c.seen = atomic.LoadUint64(&c.s.tags.v.keys[0].state)
		moments[moment](c)
		return c
	}
	died := func(c *scene, told bool) {
		if told {
			c.o.p.segment.SetDead(dead)
			return
		}
		c.o.p.find(c.n[dead].p.gids[0]).lost.Store(true) // as a look at the process finds
	}
	wants := func(c *scene, id uint64, st rdma.WCStatus, flags rdma.WCFlags) {
		c.Helper()
		if wc := c.o.poll(1)[0]; wc.WRID != id || wc.Status != st || st == rdma.WCSuccess && (wc.Opcode != rdma.WCTMRecv || wc.Flags != flags) {
			c.Fatalf("completion %+v, want %d %v flags %#x", wc, id, st, flags)
		}
	}
	none := func(c *scene) {
		c.Helper()
		var wc [1]rdma.WC
		if n, err := c.o.cq.Poll(wc[:]); n != 0 || err != nil {
			c.Fatalf("a completion that is not due: %+v, %v", wc[0], err)
		}
	}
	// Whoever has died holds nothing: the entry is where it was, the receives are
	// all there, and what has not come is not counted as unexpected.
	for name := range moments {
		for _, told := range []bool{true, false} {
			t.Run("died/"+name+map[bool]string{true: "/told", false: "/untold"}[told], func(t *testing.T) {
				c := begin(t, name)
				died(c, told)
				c.s.tags.patrol()
				none(c)
				// A helper that was to apply the match was stopped before its
				// compare-and-swap, and goes on.
				if c.tk.matched || name == "decided" {
					atomic.CompareAndSwapUint64(&c.s.tags.v.keys[0].state, c.seen, takenBy(uint32(c.seen>>32), dead))
				}
				c.s.addTag(c.o, 3, c.dst)
				post(t, c.from, eager(1), eager(3), eager(2), eager(7), eager(8))
				for _, id := range []uint64{1, 3, 2} {
					wants(c, id, rdma.WCSuccess, match|valid)
				}
				got := map[uint64]bool{}
				for range 2 {
					got[c.o.poll(1)[0].WRID] = true
				}
				if !got[100] || !got[101] {
					t.Errorf("unexpected messages got %v, want both receives", got)
				}
				none(c)
			})
		}
	}
	// Nobody waits for a claimant that is stopped: others match, and its match is
	// told ahead of theirs.
	t.Run("stopped/in its payload", func(t *testing.T) {
		c := begin(t, "in its payload")
		post(t, c.from, eager(2), eager(1)) // the second finds none: it is unexpected
		wants(c, 1, rdma.WCSuccess, match)
		wants(c, 2, rdma.WCSuccess, match|valid)
		if wc := c.o.poll(1)[0]; wc.WRID != 100 || wc.Flags != 0 {
			t.Fatalf("a message whose entry is taken: %+v", wc)
		}
		c.view.deliver(&c.view.queues[0], &c.tk, delivery{op: rdma.WRSend, n: 8})
		wants(c, 1, rdma.WCSuccess, valid)
		none(c)
	})
	t.Run("stopped/decided", func(t *testing.T) {
		c := begin(t, "decided")
		post(t, c.from, eager(2), eager(1))
		none(c) // an instant between two stores; the match comes first
		died(c, true)
		c.s.tags.patrol()
		wants(c, 2, rdma.WCSuccess, match|valid)
		if wc := c.o.poll(1)[0]; wc.WRID != 100 {
			t.Fatalf("a message whose entry is taken: %+v", wc)
		}
	})
	// A match that was told of has an end.
	for _, told := range []string{"by its completion", "by a removal that failed"} {
		t.Run("died/told "+told, func(t *testing.T) {
			c := begin(t, "in its payload")
			if told == "by its completion" {
				post(t, c.from, eager(2))
				wants(c, 1, rdma.WCSuccess, match)
				wants(c, 2, rdma.WCSuccess, match|valid)
			} else if wc, _ := c.s.op(c.o, rdma.OpsWR{Opcode: rdma.OpDel, Handle: 1 << handleIndex}); wc.Status != rdma.WCTMErr {
				t.Fatalf("the removal of an entry that is taken: %+v", wc)
			}
			died(c, false)
			begin := time.Now()
			wants(c, 1, rdma.WCWRFlushErr, 0) // the device looks by itself
			if took := time.Since(begin); took > testenv.Limit(5*time.Second) {
				t.Errorf("the end came after %v", took)
			}
			none(c)
		})
	}
	t.Run("died/removed", func(t *testing.T) {
		c := begin(t, "in its payload")
		died(c, false)
		if wc, _ := c.s.op(c.o, rdma.OpsWR{Opcode: rdma.OpDel, Handle: 1 << handleIndex}); wc.Status != rdma.WCSuccess {
			t.Errorf("the removal of an entry that a dead process held: %+v", wc)
		}
	})
	// What is given back is as what the dead held.
	for _, name := range []string{"in its payload", "unexpected"} {
		t.Run("given back/"+name, func(t *testing.T) {
			c := begin(t, name)
			c.tk.giveBack()
			c.s.addTag(c.o, 3, c.dst)
			post(t, c.from, eager(3))
			wants(c, 3, rdma.WCSuccess, match|valid)
			post(t, c.from, eager(1))
			wants(c, 1, rdma.WCSuccess, match|valid)
			post(t, c.from, eager(9), eager(9))
			c.o.poll(2)
			none(c)
		})
	}
}

// claimTag gets as far as a message of a tag whose header is there.
func claimTag(t testing.TB, view *peer, tk *ticket, s *srq, rank int, tag uint64) {
	t.Helper()
	m, ok := parseTagged(eager(tag).Inline, uint64(len(eager(tag).Inline)))
	if !ok || !view.arrive(view.sharedBy(s.index+1), rank, &m, tk) {
		t.Fatal("no claim")
	}
}
