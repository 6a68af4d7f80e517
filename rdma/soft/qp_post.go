package soft

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// PostSend executes what can be executed, on the caller's goroutine, and keeps
// the rest in the backlog.
//
// A request holds its place in the send queue until its completion has been
// polled, or, for one that makes none, the completion of a later one: as with
// a real device, a program that never asks for a completion fills the queue.
func (q *queuePair) PostSend(wrs []rdma.SendWR) (int, error) {
	if q.init.Type == rdma.XRCRecv {
		return 0, errTargetPost("post_send")
	}
	q.mu.Lock()
	n, err := len(wrs), error(nil)
	if len(wrs) == 1 && q.wire.express(&wrs[0]) {
		q.sq.counters.Batches++
		q.ring(wrs)
		q.mu.Unlock()
		return 1, nil
	}
	if !q.push(wrs) {
		n, err = q.postSend(wrs)
	}
	q.behind = 0
	if q.owed.n|q.kept != 0 {
		q.announce()
	}
	if n > 0 {
		q.sq.counters.Batches++
		q.ring(wrs[:n])
		if q.remote != nil {
			q.peer.bell.Ring()
		}
		if q.dc.held != nil && q.sq.pending.n == 0 {
			q.dc.hangUp()
		}
	}
	q.mu.Unlock()
	return n, err
}

// postSend is a post that is not one of those made fast. Called with mu held.
func (q *queuePair) postSend(wrs []rdma.SendWR) (n int, err error) {
	state := q.state()
	if q.ending.closed || state < rdma.StateRTS {
		return 0, &rdma.OpError{Op: "post_send", Detail: fmt.Sprintf("found the queue pair in %v, expected RTS", state), Err: rdma.ErrInvalid}
	}
	room := uint32(q.init.Cap.MaxSendWR) - q.sq.outstanding()
	// Over TCP and under an adversary nothing is executed at the post.
	direct := (q.remote != nil || q.init.Type == rdma.UD || q.init.Type == rdma.DCI) && q.p.cfg.Adversary == nil
	batch := direct && q.init.Type <= rdma.UC && len(wrs) > 1
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if err = q.check(wr); err != nil {
			break
		}
		if room == 0 {
			err = &rdma.OpError{Op: "post_send", Detail: fmt.Sprintf("the queue is full with %d requests: poll completions first", q.init.Cap.MaxSendWR), Err: rdma.ErrNoMemory}
			break
		}
		room--
		q.sq.posted++
		if state = q.state(); state >= rdma.StateSQE {
			if q.flushSend() {
				q.fail(wr.WRID, q.sq.posted, rdma.WCWRFlushErr)
			} else {
				q.keep(wr)
			}
			continue
		}
		if direct && state == rdma.StateRTS && q.sq.pending.n == 0 {
			if batch {
				q.behind = uint32(len(wrs) - 1 - n)
			}
			status, moved, a := q.run(wr)
			if a <= duplicate {
				q.finish(wr, q.sq.posted, status, moved)
				continue
			}
			q.keep(wr)
			if q.init.Type != rdma.UD {
				q.wait(a)
			}
			continue
		}
		q.keep(wr)
	}
	if q.sq.pending.n > 0 && n > 0 {
		if q.p.cfg.Adversary != nil {
			q.p.work.chaos.ring(q)
		}
		if q.wire.wired {
			q.advance()
		}
	}
	return n, err
}

// check judges a request as a post does, before anything is done with it.
func (q *queuePair) check(wr *rdma.SendWR) error {
	bad := func(format string, args ...any) error { return opError("post_send", rdma.ErrInvalid, format, args...) }
	o := wr.Opcode.Operation()
	if !o.OnType(q.init.Type) {
		return bad("a queue pair of type %[2]v has no operation %[1]d", uint8(wr.Opcode), q.init.Type)
	}
	if !o.GoesOut() {
		if wrong := q.pd.ctx.checkOwn(wr); wrong != "" {
			return bad("%s", wrong)
		}
		return nil
	}
	if q.init.Type == rdma.UD || q.init.Type == rdma.DCI {
		if detail := q.pd.aimed(wr); detail != "" {
			return bad("%s", detail)
		}
	}
	if len(wr.SGL) > q.init.Cap.MaxSendSGE {
		return bad("found %d gather entries, expected at most %d", len(wr.SGL), q.init.Cap.MaxSendSGE)
	}
	if wr.Flags&rdma.SendInline != 0 {
		if o.Fetches() {
			return bad("a read or an atomic has no payload to inline")
		}
		if total := inlineLength(wr); total > uint64(q.init.Cap.MaxInlineData) {
			return bad("found %d bytes inline, expected at most %d", total, q.init.Cap.MaxInlineData)
		}
		return nil
	}
	if total := sglLength(wr.SGL); total > maxMessage {
		return bad("found a message of %d bytes, expected at most %d", total, maxMessage)
	}
	return nil
}

// sglLength is how long the pieces are together.
func sglLength(sgl []rdma.SGE) (n uint64) {
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

func inlineLength(wr *rdma.SendWR) uint64 {
	if wr.Inline != nil {
		return uint64(len(wr.Inline))
	}
	return sglLength(wr.SGL)
}

// finish accounts for an executed request and completes it.
func (q *queuePair) finish(wr *rdma.SendWR, seq uint32, status rdma.WCStatus, moved uint32) {
	if status != rdma.WCSuccess {
		q.fail(wr.WRID, seq, status)
		if q.unreliable {
			q.enterSQE()
		} else {
			q.enterErr()
		}
		return
	}
	c := &q.sq.counters
	o := wr.Opcode.Operation()
	c.Count(o, 1, uint64(moved))
	if wr.Flags&rdma.SendInline != 0 {
		c.Inline++
	}
	if q.owed.n == 0 && q.kept > 0 {
		q.completeKept()
	}
	if wr.Flags&rdma.SendSignaled == 0 && !q.init.SigAll {
		return
	}
	e := entry{q: q, free: seq, wc: rdma.WC{WRID: wr.WRID, Opcode: o.Done, ByteLen: moved, QPNum: q.num}}
	if q.owed.n > 0 {
		q.held[q.kept] = e
		q.kept++
		return
	}
	q.send.complete(&e, 0, false)
}

// fail completes a request with an error.
func (q *queuePair) fail(wrid uint64, seq uint32, status rdma.WCStatus) {
	if q.owed.n|q.kept != 0 {
		q.announce()
	}
	q.sq.counters.Errors++
	q.send.complete(&entry{q: q, free: seq, wc: rdma.WC{WRID: wrid, Status: status, QPNum: q.num}}, 0, false)
}
