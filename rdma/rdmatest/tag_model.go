package rdmatest

import (
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

// tagModel does operations and messages one after the other, and compares with an
// obvious list.
func tagModel(r *rig) {
	const tags, receives, size = 24, 8, 64
	a := r.sides[1]
	m := r.sides[0].matching(receives, tags)
	src, dst := a.memory(256), m.memory((tags+receives)*size)
	links := []*link{m.to(a), m.to(a)}
	type tagEntry struct {
		id, tag, mask uint64
		handle        uint32
		enabled       bool
	}
	var list []tagEntry
	free := map[uint64]bool{}
	for i := range uint64(tags) {
		free[i] = true
	}
	for i := range uint64(receives) {
		postSRQ(r, m.srq, receive(100+i, dst.sge(int(tags+i)*size, size)))
	}
	next, delivered := uint64(0), uint32(0)
	rng := rand.New(rand.NewPCG(5, 6))
	steps := unlessSlow(r, 1500, 300)
	for step := range uint64(steps) {
		switch k := rng.IntN(10); {
		case k < 4 && len(list) < tags:
			e := tagEntry{tag: rng.Uint64N(6) << 4, mask: []uint64{exact, exact, 0x30, 0}[rng.IntN(4)]}
			for id := range free {
				e.id = id
				break
			}
			delete(free, e.id)
			var wc rdma.WCEx
			wc, e.handle = m.op(addTag(e.id, e.tag, e.mask, dst.sge(int(e.id)*size, size)))
			list = append(list, e)
			if behind := m.consumed != delivered; behind != (wc.Flags&rdma.WCFlagTMSyncReq != 0) {
				r.Fatalf("step %d: %d of %d unexpected messages are reported: %+v", step, m.consumed, delivered, wc)
			}
		case k < 5 && len(list) > 0:
			i := rng.IntN(len(list))
			if !m.del(list[i].handle) {
				r.Fatalf("step %d: entry %+v cannot be removed", step, list[i])
			}
			free[list[i].id] = true
			list = append(list[:i], list[i+1:]...)
		case k < 6:
			m.consumed = delivered
			m.op(rdma.OpsWR{WRID: opID | 7, Opcode: rdma.OpSync})
		default:
			tag := rng.Uint64N(6) << 4
			links[rng.IntN(2)].deliver(src, step, eager(step, tag, uint32(step), 40))
			found := -1
			for i, e := range list {
				if e.enabled && (e.tag^tag)&e.mask == 0 {
					found = i
					break
				}
			}
			if found >= 0 {
				m.matched(list[found].id, tag, uint32(step), 40)
				r.same("payload", dst.Load(int(list[found].id)*size, 40), pattern(step, 40))
				free[list[found].id] = true
				list = append(list[:found], list[found+1:]...)
				continue
			}
			was := m.consumed
			m.stray(100+next%receives, tag, uint32(step), rdma.TMHLen+40)
			m.consumed, delivered = was, delivered+1
			at := int(tags+next%receives) * size
			r.same("message", dst.Load(at, rdma.TMHLen+40), eager(step, tag, uint32(step), 40))
			postSRQ(r, m.srq, receive(100+next%receives, dst.sge(at, size)))
			next++
			continue // software has not reported it
		}
		if m.consumed == delivered {
			for i := range list {
				list[i].enabled = true
			}
		}
	}
	m.nothing()
}

// tagSoftware is what MPI makes of it: three senders, and a receiver whose
// receives are in the device's list and in software's. Whatever comes when, a message
// goes to the earliest receive that it matches, in the order of its sender.
func tagSoftware(r *rig) {
	const receives, tags, size, window = 8, 16, 64, 12
	m := r.sides[0].matching(receives, tags)
	dst := m.memory((receives + window) * size)
	total := unlessSlow[uint64](r, 1200, 240)
	type sender struct {
		*link
		src  Region
		sent uint64
		open int
		rng  *rand.Rand
	}
	var senders []*sender
	for i, s := range r.sides[1:] {
		s.scq = s.newCQ(64)
		senders = append(senders, &sender{link: m.to(s), src: s.memory(8 * size), rng: rand.New(rand.NewPCG(uint64(i), 9))})
	}
	for i := range uint64(receives) {
		postSRQ(r, m.srq, receive(1000+i, dst.sge(int(i)*size, size)))
	}
	type message struct{ tag, seq uint64 }
	type wanted struct {
		n         uint64 // in the order of posting
		tag, mask uint64
		handle    uint32
		slot      uint64
	}
	var expected []wanted
	var unexpected []message
	slots := []uint64{}
	for i := range uint64(window) {
		slots = append(slots, i)
	}
	posted, got := uint64(0), uint64(0)
	last := map[uint64]uint64{} // of each tag: sequence number
	rng := rand.New(rand.NewPCG(8, 8))
	accept := func(w wanted, msg message) {
		r.Helper()
		if (w.tag^msg.tag)&w.mask != 0 {
			r.Fatalf("receive %+v got message %+v", w, msg)
		}
		if msg.seq <= last[msg.tag] {
			r.Fatalf("message %+v came behind %d", msg, last[msg.tag])
		}
		last[msg.tag] = msg.seq
		got++
	}
	parse := func(b []byte) message {
		tmh := rdma.ParseTMH(b)
		return message{tmh.Tag, uint64(tmh.AppCtx)}
	}
	removals := map[uint64]wanted{}
	reported := uint32(0)
	complete := func(wc rdma.WCEx) {
		r.Helper()
		switch {
		case wc.Status == rdma.WCSuccess && (wc.Opcode == rdma.WCTMAdd || wc.Opcode == rdma.WCTMSync):
		case wc.Opcode == rdma.WCTMDel || wc.Status == rdma.WCTMErr:
			w, ok := removals[wc.WRID]
			if !ok || wc.Status != rdma.WCSuccess {
				r.Fatalf("the removal of an entry that an unexpected message matches: %+v %q", wc, wc.Status)
			}
			delete(removals, wc.WRID)
			slots = append(slots, w.slot)
		case wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCTMRecv:
			r.Fatalf("a completion: %+v %q", wc, wc.Status)
		case wc.Flags&rdma.WCFlagTMMatch != 0:
			for i, w := range expected {
				if w.n == wc.WRID {
					accept(w, message{wc.TMTag, uint64(wc.TMAppCtx)})
					expected = append(expected[:i], expected[i+1:]...)
					if wc.Flags&rdma.WCFlagTMDataValid != 0 {
						slots = append(slots, w.slot)
					} else {
						removals[wc.WRID] = w // its data comes
					}
					return
				}
				if (w.tag^wc.TMTag)&w.mask == 0 {
					r.Fatalf("message %#x passed receive %+v by", wc.TMTag, w)
				}
			}
			r.Fatalf("a match of an entry that is not there: %+v", wc)
		case wc.Flags&rdma.WCFlagTMDataValid != 0:
			slots = append(slots, removals[wc.WRID].slot)
			delete(removals, wc.WRID)
		default:
			at := int(wc.WRID-1000) * size
			msg := parse(dst.Load(at, rdma.TMHLen))
			if msg.tag != wc.TMTag {
				r.Fatalf("an unexpected message %+v: %+v", msg, wc)
			}
			postSRQ(r, m.srq, receive(wc.WRID, dst.sge(at, size)))
			m.consumed++
			for i, w := range expected {
				if (w.tag^msg.tag)&w.mask == 0 {
					accept(w, msg)
					expected = append(expected[:i], expected[i+1:]...)
					removals[opID|w.n] = w
					m.ops(rdma.OpsWR{WRID: opID | w.n, Opcode: rdma.OpDel, Flags: rdma.SendSignaled, Handle: w.handle})
					return
				}
			}
			unexpected = append(unexpected, msg)
		}
	}
	r.until("all messages", func() bool {
		for i, s := range senders {
			for wc, ok := s.a.poll(s.a.scq); ok; wc, ok = s.a.poll(s.a.scq) {
				if wc.Status != rdma.WCSuccess {
					r.Fatalf("message %d of sender %d: %q", wc.WRID, i, wc.Status)
				}
				s.open--
			}
			for s.open < 4 && s.rng.IntN(4) > 0 {
				s.sent++
				s.open++
				at := int(s.sent%8) * size
				s.src.Store(at, eager(s.sent, uint64(i)<<8|s.rng.Uint64N(3), uint32(s.sent), 40))
				s.send(send(s.sent, s.src.sge(at, rdma.TMHLen+40)))
			}
		}
		for {
			var wc [4]rdma.WCEx
			n := result(m.rcq.PollEx(wc[:1+rng.IntN(4)])).must(r, "PollEx")
			if n == 0 {
				break
			}
			for _, wc := range wc[:n] {
				complete(wc)
			}
		}
		for posted < total && len(slots) > 0 && rng.IntN(3) > 0 {
			w := wanted{n: posted, slot: slots[0], tag: rng.Uint64N(3)<<8 | rng.Uint64N(3), mask: []uint64{exact, 0xff00, 0}[rng.IntN(3)]}
			found := false
			for i, msg := range unexpected {
				if found = (w.tag^msg.tag)&w.mask == 0; found {
					accept(w, msg)
					unexpected = append(unexpected[:i], unexpected[i+1:]...)
					break
				}
			}
			posted++
			if found {
				continue
			}
			slots = slots[1:]
			wr := addTag(w.n, w.tag, w.mask, dst.sge(int(receives+w.slot)*size, size))
			wr.Flags |= rdma.OpsTMSync
			wr.UnexpectedCnt, reported = m.consumed, m.consumed
			list := []rdma.OpsWR{wr}
			m.ops(list...)
			w.handle = list[0].Handle
			expected = append(expected, w)
		}
		if reported != m.consumed {
			reported = m.consumed
			m.ops(rdma.OpsWR{WRID: opID - 1, Opcode: rdma.OpSync, Flags: rdma.SendSignaled | rdma.OpsTMSync, UnexpectedCnt: m.consumed})
		}
		return got == total
	})
}
