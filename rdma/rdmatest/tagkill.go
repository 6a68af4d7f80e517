package rdmatest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

const (
	tagKillSize    = 4096 // bytes of a payload
	tagKillEntries = 8    // two of each tag
	tagKillTags    = tagKillEntries / 2
)

// A tagFlood is messages of equal words with tags, eager and by rendezvous, without
// end.
type tagFlood struct {
	QP, CQ, RecvCQ, Mem handle // at an agent
	Seed                uint64
}

func (a *agent) tagFlood(c *call) error {
	f := c.Load.Tags
	var qp rdma.QP
	var cq, rcq rdma.CQ
	var mem Region
	if err := errors.Join(find(a, f.QP, &qp), find(a, f.CQ, &cq), find(a, f.RecvCQ, &rcq), find(a, f.Mem, &mem)); err != nil {
		return err
	}
	go f.run(qp, cq, rcq, mem)
	return nil
}

// run sends until something fails, or the process is killed. Of each kind one is on
// its way at a time; tag tagKillTags matches nothing.
func (f tagFlood) run(qp rdma.QP, cq, rcq rdma.CQ, mem Region) {
	rng := rand.New(rand.NewPCG(f.Seed, 2))
	var wc [4]rdma.WC
	fill := func(at int, n uint64) {
		b := make([]byte, tagKillSize)
		for i := 0; i < len(b); i += 8 {
			binary.NativeEndian.PutUint64(b[i:], n)
		}
		mem.Store(at, b)
	}
	const eagerAt, headAt, rndvAt, finAt = 0, 8 << 10, 16 << 10, 24 << 10
	open, announced := 0, false
	for n := f.Seed<<20 | 1; ; n++ {
		for open > 0 {
			k, err := cq.Poll(wc[:])
			if err != nil {
				return
			}
			for _, c := range wc[:k] {
				if c.Status != rdma.WCSuccess {
					return
				}
			}
			open -= k
		}
		k, err := rcq.Poll(wc[:])
		if err != nil || k > 0 && wc[0].Status != rdma.WCSuccess {
			return
		}
		announced = announced && k == 0
		tag := rng.Uint64N(tagKillTags + 1)
		wr := rdma.SendWR{WRID: n, Opcode: rdma.WRSend, Flags: rdma.SendSignaled}
		if !announced && rng.IntN(2) == 0 {
			if _, err := qp.PostRecv([]rdma.RecvWR{receive(n, mem.sge(finAt, 64))}); err != nil {
				return
			}
			announced = true
			fill(rndvAt, n)
			mem.Store(headAt, rndv(tag, uint32(n), mem, rndvAt, tagKillSize))
			wr.SGL = []rdma.SGE{mem.sge(headAt, rndvLen)}
		} else {
			fill(eagerAt+rdma.TMHLen, n)
			mem.Store(eagerAt, rdma.TMH{Opcode: rdma.TMEager, Tag: tag}.Append(nil))
			wr.SGL = []rdma.SGE{mem.sge(eagerAt, rdma.TMHLen+tagKillSize)}
		}
		if _, err := qp.PostSend([]rdma.SendWR{wr}); err != nil {
			return
		}
		open++
	}
}

// RunTagFlood kills processes in the middle of messages to a queue that matches tags,
// and of rendezvous, and holds the survivor to this: what completes is whole, every
// match has an end, no entry and no receive is lost or used twice, and the
// list goes on for those that live.
func RunTagFlood(t *testing.T, f FloodFabric) {
	t.Helper()
	testenv.NoLeaks(t)
	survivor, start := f.Open(t)
	r := newRig(t, Fabric{Patience: 20 * time.Second, Open: func(testing.TB, int) []Node { return []Node{survivor} }}, "tagflood", 1)
	s := r.sides[0]
	rng := rand.New(rand.NewPCG(f.Seed, 3))
	m := s.matching(floodDepth, tagKillEntries)
	const slot = 8 << 10
	dst := s.memory((tagKillEntries + floodDepth) * slot)
	slotOf := func(i uint64) rdma.SGE { return dst.sge(int(i)*slot, slot) }
	for i := range uint64(floodDepth) {
		postSRQ(r, m.srq, receive(1000+i, slotOf(tagKillEntries+i)))
	}
	handles := map[uint64]uint32{} // of the entries
	add := func(id uint64) {
		wr := addTag(id, id/2, exact, slotOf(id))
		wr.Flags |= rdma.OpsTMSync
		wr.UnexpectedCnt = m.consumed
		list := []rdma.OpsWR{wr}
		m.ops(list...)
		handles[id] = list[0].Handle
	}
	messages, ended := 0, 0
	told := map[uint64]bool{}
	whole := func(what string, off, n int) {
		b := dst.Load(off, n)
		first := binary.NativeEndian.Uint64(b)
		for i := 0; i < len(b); i += 8 {
			if v := binary.NativeEndian.Uint64(b[i:]); v != first || first == 0 {
				r.Fatalf("%s: word %d is %d, the first %d", what, i/8, v, first)
			}
		}
		messages++
	}
	look := func() {
		var list [4]rdma.WCEx
		n := result(m.rcq.PollEx(list[:])).must(r, "PollEx")
		for _, wc := range list[:n] {
			id := wc.WRID
			switch {
			case id >= opID:
				if wc.Status != rdma.WCSuccess {
					r.Fatalf("an operation: %+v %q", wc, wc.Status)
				}
			case id >= 1000:
				off := int(tagKillEntries+id-1000) * slot
				if wc.Status == rdma.WCSuccess && wc.Opcode == rdma.WCTMRecv {
					if m.consumed++; wc.ByteLen == rdma.TMHLen+tagKillSize {
						whole("an unexpected message", off+rdma.TMHLen, tagKillSize)
					}
				}
				postSRQ(r, m.srq, receive(id, slotOf(tagKillEntries+id-1000)))
			case wc.Status != rdma.WCSuccess:
				ended++ // its sender has died
				delete(told, id)
				add(id)
			default:
				if _, ok := handles[id]; !ok || wc.Flags&rdma.WCFlagTMMatch != 0 && told[id] || wc.Flags&rdma.WCFlagTMMatch == 0 && !told[id] {
					r.Fatalf("a message to an entry that is not there: %+v", wc)
				}
				told[id] = true
				if wc.Flags&rdma.WCFlagTMDataValid != 0 {
					if wc.ByteLen != tagKillSize || wc.TMTag != id/2 {
						r.Fatalf("a message to entry %d: %+v", id, wc)
					}
					whole("a message", int(id)*slot, tagKillSize)
					delete(told, id)
					add(id)
				}
			}
		}
		if n > 0 {
			m.ops(rdma.OpsWR{WRID: opID, Opcode: rdma.OpSync, Flags: rdma.OpsTMSync | rdma.SendSignaled, UnexpectedCnt: m.consumed})
		}
	}
	for id := range uint64(tagKillEntries) {
		add(id)
	}
	leave := func(qp rdma.QP) {
		r.move(qp, rdma.StateErr)
		// A rendezvous' answer to the dead one has no completion: its failure is an event.
		equal(r, s.event(rdma.EventQPLastWQEReached, rdma.EventQPFatal).QP, qp, "the event is of")
		look()
		r.close(qp)
	}
	type life struct {
		victim Victim
		dead   func()
		qp     rdma.QP
	}
	begin := func(i int) life {
		v, dead := start(i)
		kid := &side{r: r, index: i + 1, node: v, ctx: v.Context()}
		kid.pd, kid.scq, kid.rcq = kid.newPD(), kid.newCQ(64), kid.newCQ(64)
		introduce(t, kid.ctx, s.ctx)
		introduce(t, s.ctx, kid.ctx)
		l := r.connect(kid, s, ownCQs(1, nil, m.rcq), from(1, m.srq))
		mem := kid.memory(32 << 10)
		p := v.(interface {
			call(*call) (*answer, error)
		})
		fl := tagFlood{QP: handleOf(l.qa), CQ: handleOf(kid.scq), RecvCQ: handleOf(kid.rcq), Mem: handleOf(mem.MR), Seed: uint64(i + 1)}
		if _, err := p.call(&call{Op: opTagFlood, Load: load{Tags: fl}}); err != nil {
			r.Fatalf("start victim %d: %v", i, err)
		}
		return life{v, dead, l.qb}
	}
	of := func(l life) (Victim, func()) { return l.victim, l.dead }
	var alive []life
	kills := 0
	for ; kills < f.Kills; kills++ {
		goOn := still(r, alive, of)
		for len(alive) < floodAlive {
			alive = append(alive, begin(kills+len(alive)))
		}
		goOn()
		alive = strike(r, rng, alive, of, look, func(l life) { leave(l.qp) })
		before := messages
		r.until("a message of those who live", func() bool {
			look()
			return messages > before || len(alive) == 0
		})
	}
	for _, v := range alive {
		r.must(v.victim.Kill(), "Kill")
	}
	for _, v := range alive {
		leave(v.qp)
	}
	r.forget()
	r.until("the end of every match", func() bool {
		look()
		return len(told) == 0
	})
	// Every entry is there, once, and so is every receive.
	own := r.connect(s, s, ownCQs(1, nil, m.rcq), from(1, m.srq))
	src := s.memory(64)
	seen := map[uint64]bool{}
	r.until("every entry", func() bool {
		for wc, ok := s.poll(m.rcq); ok; wc, ok = s.poll(m.rcq) {
			if wc.WRID >= opID {
				continue
			}
			if wc.WRID < 1000 && wc.Status == rdma.WCSuccess && wc.Flags&rdma.WCFlagTMDataValid == 0 {
				told[wc.WRID] = true // of a dead one's match that others overtook: its data, or its end, comes by another completion
				continue
			}
			if wc.WRID < 1000 && (seen[wc.WRID] || wc.Status != rdma.WCSuccess && !told[wc.WRID]) {
				r.Fatalf("entry %d: %+v %q, seen %v", wc.WRID, wc, wc.Status, seen)
			}
			if wc.WRID < 1000 {
				seen[wc.WRID] = true
				continue
			}
			if wc.Opcode == rdma.WCTMRecv {
				m.consumed++
			}
			postSRQ(r, m.srq, receive(wc.WRID, slotOf(tagKillEntries+wc.WRID-1000)))
		}
		for id := range uint64(tagKillEntries) {
			if !seen[id] {
				m.ops(rdma.OpsWR{WRID: opID, Opcode: rdma.OpSync, Flags: rdma.OpsTMSync | rdma.SendSignaled, UnexpectedCnt: m.consumed})
				own.deliver(src, id, eager(1, id/2, 0, 8))
				return false
			}
		}
		return true
	})
	clear(seen)
	for i := range uint64(floodDepth) {
		own.deliver(src, i, []byte{byte(rdma.TMNoTag)})
		wc := s.next(m.rcq)
		for wc.WRID >= opID {
			wc = s.next(m.rcq)
		}
		if wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMNoTag || seen[wc.WRID] {
			r.Fatalf("message %d of the survivor's own: %+v %q, seen %v", i, wc, wc.Status, seen)
		}
		seen[wc.WRID] = true
	}
	t.Logf("%d kills, %d messages, %d ends of the dead's", kills, messages, ended)
}
