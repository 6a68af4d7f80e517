package p2p

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Status tells what a receive took.
type Status struct {
	Source int // in the world
	Tag    int
	Bytes  int
}

// A TruncateError reports a message that did not fit.
type TruncateError struct{ Message, Buffer int }

func (e *TruncateError) Error() string {
	return fmt.Sprintf("a message of %d bytes does not fit the receive buffer of %d bytes", e.Message, e.Buffer)
}

// A receipt is a receive under way.
//
//	posted --eager arrives--> done
//	   |----announce arrives--> reading --last read completes--> done
type receipt struct {
	match.Receive[*receipt]
	buf  []byte
	mr   rdma.MR // holds buf, nil for ordinary memory
	done bool
	err  error
	st   Status

	// While reading.
	link    *link
	number  uint32 // in Engine.reads
	id      uint32 // the sender's
	address uint64
	rkey    uint32
	lkey    uint32
	temp    rdma.MR
	length  int // bytes to read
	posted  int // of them, asked for
	pending int // reads that are not complete

	next *receipt
}

func (r *receipt) complete(err error) { r.done, r.err = true, err }

// deliver ends a receipt with a message that is at hand.
func (r *receipt) deliver(env match.Envelope, payload []byte) {
	n := copy(r.buf, payload)
	r.st = Status{Source: int(env.Source), Tag: int(env.Tag), Bytes: n}
	var err error
	if n < len(payload) {
		err = &TruncateError{Message: len(payload), Buffer: len(r.buf)}
	}
	r.complete(err)
}

// Recv receives a message that fits want into buf. group is who may send it when
// want leaves the source open, nil for all: when one of them dies Recv fails.
func (e *Engine) Recv(ctx context.Context, buf []byte, mr rdma.MR, want match.Envelope, group []int32) (Status, error) {
	r, err := e.start(buf, mr, want)
	if err != nil {
		return Status{}, err
	}
	return e.end(ctx, r, group)
}

// Exchange sends and receives at the same time.
func (e *Engine) Exchange(ctx context.Context, send []byte, sendMR rdma.MR, env match.Envelope, peer int,
	recv []byte, recvMR rdma.MR, want match.Envelope, group []int32) (Status, error) {
	r, err := e.start(recv, recvMR, want)
	if err != nil {
		return Status{}, err
	}
	if err := e.Send(ctx, send, sendMR, env, peer); err != nil {
		e.giveUp(r)
		return Status{}, about(peer, err)
	}
	st, err := e.end(ctx, r, group)
	return st, about(int(want.Source), err)
}

// about is an error with the peer that it concerns, unless it says so already or
// there is none.
func about(peer int, err error) error {
	if err == nil || peer < 0 {
		return err
	}
	if _, said := errors.AsType[*PeerError](err); said {
		return err
	}
	return &PeerError{Peer: peer, Err: err}
}

// start posts a receive.
func (e *Engine) start(buf []byte, mr rdma.MR, want match.Envelope) (*receipt, error) {
	if e.err != nil {
		return nil, e.err
	}
	r := e.receipts
	if r == nil {
		r = new(receipt)
		r.Value = r
	} else {
		e.receipts = r.next
		*r = receipt{}
		r.Value = r
	}
	r.Envelope, r.buf, r.mr = want, buf, mr
	m := e.matches.Post(&r.Receive)
	if m == nil {
		return r, nil
	}
	if m.Value.long {
		e.begin(r, m.Envelope, &e.links[m.Source], &m.Value.header)
	} else {
		r.deliver(m.Envelope, m.Value.data)
	}
	e.release(m)
	return r, nil
}

// end waits for a receive and gives its outcome.
func (e *Engine) end(ctx context.Context, r *receipt, group []int32) (Status, error) {
	if !r.done {
		if err := e.wait(ctx, condition{what: untilReceipt, receipt: r, group: group}); err != nil {
			if !e.giveUp(r) {
				return Status{}, err
			}
			return e.finish(r)
		}
	}
	return e.finish(r)
}

// giveUp takes a receive back; true: too late, its message has been received.
func (e *Engine) giveUp(r *receipt) bool {
	if !r.done && !e.matches.Cancel(&r.Receive) {
		// Reads into the buffer are under way. They end in bounded time, for
		// better or worse: the device sees to a peer that does not answer.
		if err := e.wait(context.Background(), condition{what: untilReceipt, receipt: r}); err != nil {
			r.complete(err)
		}
	}
	return r.done
}

// finish gives the outcome of a receive that is done and recycles it.
func (e *Engine) finish(r *receipt) (Status, error) {
	st, err := r.st, r.err
	r.buf, r.mr, r.link, r.next = nil, nil, nil, e.receipts
	e.receipts = r
	return st, err
}

// begin reads an announced message.
func (e *Engine) begin(r *receipt, env match.Envelope, l *link, h *header) {
	r.length = min(len(r.buf), int(h.length))
	r.st = Status{Source: int(env.Source), Tag: int(env.Tag), Bytes: r.length}
	if int(h.length) > len(r.buf) {
		r.err = &TruncateError{Message: int(h.length), Buffer: len(r.buf)}
	}
	r.link, r.id, r.address, r.rkey = l, h.id, h.address, h.key
	r.posted, r.pending = 0, 0
	if l.err != nil {
		r.complete(l.err)
		return
	}
	if r.length == 0 {
		e.assign(l, chore{answer: finished, id: r.id})
		r.complete(r.err)
		return
	}
	key, temp, err := e.key(r.buf[:r.length], r.mr, rdma.AccessLocalWrite)
	var number uint32
	if err == nil {
		var ok bool
		if number, ok = e.reads.add(r); !ok {
			err = fmt.Errorf("more than %d long receives at a time", 1<<16)
		}
	}
	if err != nil {
		e.assign(l, chore{answer: finished, id: r.id}) // the sender is not to blame
		r.complete(err)
		return
	}
	r.temp, r.lkey, r.number = temp, key.LKey(), number
	e.assign(l, chore{read: r})
}

// read posts the next read of a receipt and tells whether it was the last.
func (e *Engine) read(l *link, r *receipt) (last bool) {
	n := min(r.length-r.posted, readMax)
	e.sge[0] = rdma.SGE{Addr: address(r.buf) + uint64(r.posted), Length: uint32(n), LKey: r.lkey}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: e.sge[:], RemoteAddr: r.address + uint64(r.posted), RKey: r.rkey}
	r.posted += n
	r.pending++
	last = r.posted == r.length
	_ = e.post(l, whatRead, r.number) // a failure fails the link, and r with it
	return last
}

// readDone handles the completion of a read.
func (e *Engine) readDone(l *link, number uint32) {
	r := e.reads.get(number)
	if r == nil || r.link != l {
		return
	}
	r.pending--
	if r.pending > 0 || r.posted < r.length {
		return
	}
	e.reads.remove(number)
	if r.temp != nil {
		if err := r.temp.Close(); err != nil && r.err == nil {
			r.err = err
		}
		r.temp = nil
	}
	e.assign(l, chore{answer: finished, id: r.id})
	r.complete(r.err)
}
