package soft

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// queuePair is the owner's half of a queue pair; a queueContext is what peers
// see of it. The queue pair's state is context.word and nothing else.
//
// Locks: mu before rq.mu before the completion queues' mu before Provider.mu.
type queuePair struct {
	rdma.UnsupportedQP
	fixed

	mu   sync.Mutex // guards all that follows, but for what says otherwise
	attr rdma.QPAttr
	route
	sq      sendQueue
	scratch scratch
	wire    wireState  // over TCP
	dc      connection // of DCI
	calls   callers    // of DCT, over TCP
	change  keyChange  // of the head of pending, when that is for the own side
	ending  ending
	target  atomic.Pointer[target] // peer and remote, for deregistrations

	rq receiveRing // has a lock of its own
	batch
}

// What CreateQP has fixed. Anybody may read it.
type fixed struct {
	p     *Provider
	pd    *domain
	num   uint32
	index uint32
	own   *queueContext
	init  rdma.QPInitAttr
	send  *completionQueue
	recv  *completionQueue

	shared     *sharedQueue // where receives come from, nil for the queue pair's own slots
	within     *xrcDomain   // XRCRecv: the domain
	addressing uint32       // bytes that a work queue entry has for where it goes
	unreliable bool         // UC and UD: no answers
	answerer   rdma.QPType  // of the queue pair at the other end
}

// A route is where requests go, and how far they have come there. Guarded by mu.
type route struct {
	peer   *peer
	remote *queueContext // the peer's context, nil when requests go over TCP
	dest   uint64        // how the peer's context names this queue pair
	turn   uint64        // of the mark
	psn    uint32        // of the next request to execute
	posts  uint32        // executions, to look after the peer now and then
	life   uint32        // of the connection, to tell answers to an earlier one
}

// A sendQueue is what was posted and is not complete. Guarded by mu, but for freed.
type sendQueue struct {
	posted   uint32  // requests ever posted, counted for ever: the doorbell record
	freed    uint32  // requests whose slot is free again: their completion was polled; atomic
	pending  backlog // posted and not executed
	counters rdma.Counters
	waiting  answer    // what the head of pending got, if it was tried
	tries    uint8     // how often it was
	listed   bool      // in Provider.work
	rung     uint32    // how far the device has read the record; of an Adversary
	until    time.Time // when it is tried again, zero for no end
}

// outstanding counts the requests that hold a place in the queue.
func (s *sendQueue) outstanding() uint32 { return s.posted - atomic.LoadUint32(&s.freed) }

// A scratch is for the request that is executed. Guarded by mu.
type scratch struct {
	mem   gatherer
	to    *scatter   // a receiver's memory; made when first needed
	tk    ticket     // the receive that the request takes
	named namedQueue // XRC
	grh   [rdma.GRHLen]byte
}

// An ending is what a queue pair has behind it on its way to its end.
type ending struct {
	closed   bool // guarded by mu, as the next two
	draining bool // the program wants to hear when SQD has nothing under way
	lastWQE  bool // and has heard that it takes no more from its shared queue

	orphaned bool        // of XRC: closed while another process had it open; guarded by the context's mu
	left     atomic.Bool // the program has closed it
	gone     atomic.Bool // and no other process has it open: own is another's soon
}

// A target is where a queue pair executes its requests.
type target struct {
	peer    *peer
	context *queueContext
}

func (d *domain) CreateQP(init rdma.QPInitAttr) (rdma.QP, error) {
	bad := func(f string, a ...any) (rdma.QP, error) { return nil, opError("create_qp", rdma.ErrInvalid, f, a...) }
	answerer := init.Type
	var within *xrcDomain
	switch init.Type {
	case rdma.RC, rdma.UC, rdma.UD:
	case rdma.XRCSend:
		answerer = rdma.XRCRecv
		init.RecvCQ, init.SRQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = init.SendCQ, nil, 0, 0 // it receives nothing
	case rdma.XRCRecv:
		var ok bool
		if within, ok = init.XRCD.(*xrcDomain); !ok || within.ctx != d.ctx {
			return bad("expected an XRC domain of this context")
		}
		quiet, err := d.ctx.quietQueue()
		if err != nil {
			return nil, err
		}
		init.SendCQ, init.RecvCQ, init.SRQ, init.Cap = quiet, quiet, nil, rdma.QPCap{}
	case rdma.DCI:
		answerer = rdma.DCT
		init.RecvCQ, init.SRQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = init.SendCQ, nil, 0, 0 // it receives nothing
	case rdma.DCT:
		if init.SRQ == nil {
			return bad("a target needs a shared receive queue")
		}
		init.SendCQ, init.Cap = init.RecvCQ, rdma.QPCap{} // it sends nothing
	default:
		return nil, &rdma.OpError{Op: "create_qp", Detail: fmt.Sprintf("found type %v, expected RC, UC, UD, XRC or DC", init.Type), Err: rdma.ErrNotSupported}
	}
	if wrong := stridingBad(&init); wrong != "" {
		return bad("%s", wrong)
	}
	if init.Striding.Strides > 0 {
		init.Cap.MaxInlineRecv = 0
	}
	send, ok1 := init.SendCQ.(*completionQueue)
	recv, ok2 := init.RecvCQ.(*completionQueue)
	if !ok1 || !ok2 || send.ctx != d.ctx || recv.ctx != d.ctx {
		return bad("expected two completion queues of this context")
	}
	for _, v := range []struct {
		name   string
		v, max int
	}{
		{"max_send_wr", init.Cap.MaxSendWR, maxWR}, {"max_recv_wr", init.Cap.MaxRecvWR, maxWR},
		{"max_send_sge", init.Cap.MaxSendSGE, maxSGE}, {"max_recv_sge", init.Cap.MaxRecvSGE, maxSGE},
		{"max_inline_data", init.Cap.MaxInlineData, maxInline}, {"max_inline_recv", init.Cap.MaxInlineRecv, maxInlineRecv},
	} {
		if v.v < 0 || v.v > v.max {
			return bad("found %s %d, expected 0 to %d", v.name, v.v, v.max)
		}
	}
	if err := d.adopt("create_qp"); err != nil {
		return nil, err
	}
	q := &queuePair{fixed: fixed{p: d.p, pd: d, init: init, send: send, recv: recv, addressing: addressing(init.Type),
		answerer: answerer, within: within, unreliable: init.Type == rdma.UC || init.Type == rdma.UD}}
	q.wire.q, q.dc.q = q, q
	q.rq = receiveRing{q: q, strides: uint32(max(init.Striding.Strides, 1)), strideBytes: uint32(init.Striding.StrideBytes)}
	if init.SRQ != nil {
		s, ok := init.SRQ.(*srq)
		if !ok || s.pd.ctx != d.ctx {
			d.disown()
			return bad("the shared receive queue is not of this context")
		}
		if s.strides != nil && init.Type != rdma.RC && init.Type != rdma.UC {
			d.disown()
			return bad("a shared receive queue with strides serves RC and UC, not %v", init.Type)
		}
		if s.tags != nil && init.Type != rdma.RC {
			d.disown()
			return bad("a shared receive queue with tags serves RC, not %v", init.Type)
		}
		if err := s.adopt("create_qp"); err != nil {
			d.disown()
			return nil, err
		}
		q.shared, q.init.Cap.MaxRecvWR, q.init.Cap.MaxRecvSGE, q.init.Cap.MaxInlineRecv = s.sharedQueue, 0, 0, 0
	}
	if within != nil {
		if err := within.adopt("create_qp"); err != nil {
			d.disown()
			return nil, err
		}
	}
	if err := q.create(); err != nil {
		q.leaveSRQ()
		d.disown()
		return nil, err
	}
	return q, nil
}

// leaveSRQ ends the queue pair's use of its SRQ, and of its XRC domain.
func (q *queuePair) leaveSRQ() {
	if q.within != nil {
		q.within.disown()
	}
	if q.shared != nil && q.shared.api != nil {
		q.shared.api.disown()
	}
}

// create gives the queue pair its number, context and receive queue.
func (q *queuePair) create() error {
	p := q.p
	n := q.init.Cap.MaxRecvWR
	switch {
	case n > 0 && q.init.Type == rdma.UD:
		h, err := q.pd.openShared("create_qp", n, q.init.Cap.MaxRecvSGE, 0, rdma.StridingRQ{})
		if err != nil {
			return err
		}
		q.shared, h.inbox, q.init.Cap.MaxInlineRecv = h, q, 0
		h.show()
	case n > 0:
		if err := q.rq.create(n, q.init.Cap); err != nil {
			return &rdma.OpError{Op: "create_qp", Detail: "receive queue", Err: err}
		}
	}
	q.scratch.mem.segs = make([][]byte, 0, max(q.init.Cap.MaxSendSGE, 1))

	if err := q.send.hold(); err != nil {
		q.rq.free()
		return err
	}
	if err := q.recv.hold(); err != nil {
		q.send.detach(q)
		q.rq.free()
		return err
	}
	unlock := func() {}
	if q.within != nil {
		// Its number must be the only one of its domain: OpenQP goes by it.
		var err error
		if unlock, err = p.lockDomains(); err != nil {
			q.recv.detach(q)
			q.send.detach(q)
			return &rdma.OpError{Op: "create_qp", Detail: err.Error(), Err: rdma.ErrNoMemory}
		}
	}
	defer func() { unlock() }()
	p.mu.Lock()
	i, ok := p.free.qps.take()
	if ok {
		for len(p.free.lives) <= i {
			p.free.lives = append(p.free.lives, 0)
		}
		p.free.lives[i] = p.cfg.Numbers.next(p.free.lives[i])
		q.index = uint32(i)
		q.num = uint32(p.free.lives[i])<<queueBits | q.index
		p.head.touched.queues = max(p.head.touched.queues, q.index+1)
	}
	p.mu.Unlock()
	for tries := 0; ok && q.within != nil && tries < 1<<(24-queueBits) && p.targetNumbered(q.num, q.within.id) != nil; tries++ {
		p.mu.Lock()
		p.free.lives[i] = p.cfg.Numbers.next(p.free.lives[i])
		q.num = uint32(p.free.lives[i])<<queueBits | q.index
		p.mu.Unlock()
	}
	if !ok {
		q.recv.detach(q)
		q.send.detach(q)
		q.rq.free()
		return &rdma.OpError{Op: "create_qp", Detail: fmt.Sprintf("all %d queue pairs are in use: close one first", p.layout.queues), Err: rdma.ErrNoMemory}
	}
	// The context is in RESET, where no initiator reads more than its word:
	// the last life of this index ended with a drain.
	c := &p.queues[i]
	// Senders of datagrams may be looking for an earlier one.
	atomic.StoreUint32(&c.num, q.num)
	c.pd = q.pd.id
	c.slotsAt, c.slots, c.slotSize, c.slotSGEs = q.rq.at, q.rq.slots, q.rq.size, uint16(q.init.Cap.MaxRecvSGE)
	c.inline = uint16(q.init.Cap.MaxInlineRecv)
	c.sendCQ, c.recvCQ = q.send.index, q.recv.index
	inbox := uint32(0)
	if q.shared != nil {
		inbox = q.shared.index + 1
	}
	atomic.StoreUint32(&c.shared, inbox)
	scope := uint64(0)
	if q.within != nil {
		scope = q.within.id
	}
	if q.init.Type == rdma.DCT {
		scope = q.init.DCAccessKey
	}
	if q.init.Striding.Strides > 0 {
		scope = packStrides(q.init.Striding)
	}
	atomic.StoreUint64(&c.scope, scope)
	atomic.StoreUint32(&c.opens, 0)
	atomic.StoreUint32(&c.word, uint32(rdma.StateReset))
	q.own = c
	p.byQPN.set(q.index, q)
	q.send.attach(q)
	q.recv.attach(q)
	ctx := q.pd.ctx
	ctx.mu.Lock()
	if ctx.queues == nil {
		ctx.queues = make(map[*queuePair]struct{})
	}
	ctx.queues[q] = struct{}{}
	ctx.mu.Unlock()
	return nil
}

func (r *receiveRing) free() {
	q := r.q
	if q.shared != nil && q.shared.inbox != nil {
		_ = q.shared.shut(new(patience)) // no process is at it: the one that destroys the queue pair has waited
	}
	r.destroy()
}

func (q *queuePair) PD() rdma.PD { return q.pd }
func (q *queuePair) Num() uint32 { return q.num }

// State looks first: a completion queue that initiators have overrun takes its
// queue pairs to ERR.
func (q *queuePair) State() rdma.QPState {
	if q.ending.gone.Load() {
		return rdma.StateReset
	}
	q.look()
	return q.state()
}

// look takes in what initiators have done to the queue pair. Called without locks.
func (q *queuePair) look() {
	if atomic.LoadUint32(&q.recv.head.attention) != 0 {
		q.recv.look()
	}
}

func (q *queuePair) state() rdma.QPState {
	return rdma.QPState(atomic.LoadUint32(&q.own.word) & queueState)
}

func (q *queuePair) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	q.look()
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attr
	if !q.ending.gone.Load() {
		a.State = q.state()
	}
	return a, q.init
}

func (q *queuePair) snapshot() rdma.Counters {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sq.counters
}
