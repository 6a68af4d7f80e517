package soft

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// Extended reliable connections. An initiator (XRCSend) is connected to a target
// (XRCRecv), which may be one for all processes of a host: each request that
// takes a receive names the shared queue, of whichever process, that it takes it
// from. Target and queue must be of one domain. One-sided operations reach the
// memory of the target's protection domain.
//
// The executor of a request works on the queue of a third process as on that of
// the target: by claims. It must have been told of that process
// (AddEndpoint). A message that comes over TCP in pieces keeps its claim until the
// last.

// xrcDomain is an XRC domain as opened by one context.
type xrcDomain struct {
	family // of queue pairs and shared queues of this context
	ctx    *context
	id     uint64
}

// privateDomain is set in the id of a domain without a file.
const privateDomain = 1 << 63

func (c *context) OpenXRCD(attr rdma.XRCDInitAttr) (rdma.XRCD, error) {
	bad := func(err error, f string, a ...any) (rdma.XRCD, error) { return nil, opError("open_xrcd", err, f, a...) }
	p := c.p
	if bits, _ := p.srqRankBits(); p.cfg.Rank >= 1<<bits {
		return bad(rdma.ErrNotSupported, "rank %d: the numbers of shared queues have room for %d", p.cfg.Rank, 1<<bits)
	}
	if attr.Flags&^(os.O_CREATE|os.O_EXCL) != 0 {
		return bad(rdma.ErrInvalid, "found flags %#x, expected O_CREAT and O_EXCL only", attr.Flags)
	}
	var id uint64
	if attr.File == nil {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return bad(rdma.ErrNoMemory, "%v", err)
		}
		id = binary.NativeEndian.Uint64(b[:]) | privateDomain
	} else {
		name, err := inode(attr.File)
		if err != nil {
			return bad(rdma.ErrInvalid, "%s: %v", attr.File.Name(), err)
		}
		sum := sha256.Sum256(name)
		id = binary.NativeEndian.Uint64(sum[:])&^privateDomain | 1
	}
	if err := c.adopt("open_xrcd"); err != nil {
		return nil, err
	}
	fail := func(err error, format string, args ...any) (rdma.XRCD, error) {
		c.disown()
		return bad(err, format, args...)
	}
	unlock, err := p.lockDomains()
	if err != nil {
		return fail(rdma.ErrNoMemory, "%v", err)
	}
	defer unlock()
	if attr.File != nil {
		switch there := p.domainThere(id); {
		case there && attr.Flags&os.O_EXCL != 0:
			return fail(rdma.ErrInvalid, "%s: the domain exists already, and O_EXCL was asked for", attr.File.Name())
		case !there && attr.Flags&os.O_CREATE == 0:
			return fail(rdma.ErrInvalid, "%s: there is no domain: ask for O_CREAT to make it", attr.File.Name())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	made, free := &xrcDomain{family{name: "XRC domain"}, c, id}, -1
	for i, o := range p.domains {
		if o.id == id {
			p.domains[i].opens++
			return made, nil
		}
		if o.opens == 0 && free < 0 {
			free = i
		}
	}
	if free < 0 {
		return fail(rdma.ErrNoMemory, "all %d domains are open: close one first", len(p.domains))
	}
	p.domains[free] = openDomain{id, 1}
	atomic.StoreUint64(&p.head.domains[free], id)
	return made, nil
}

// An openDomain is an XRC domain that this provider has open.
type openDomain struct {
	id    uint64
	opens int
}

// lockDomains keeps other processes from opening and closing domains, and from
// making target queue pairs: the first lock word of the first arena.
func (p *Provider) lockDomains() (unlock func(), err error) {
	arena, err := p.segment.Arena(0)
	if err != nil {
		return nil, err
	}
	w := &at[lockWord](arena, p.layout.lockAt).word
	held := p.self.lock(w, p.cfg.Rank)
	return func() { p.self.unlock(w, held) }, nil
}

// domainThere tells whether any living process of the segment has a domain open.
func (p *Provider) domainThere(id uint64) bool {
	for rank := range p.segment.Ranks() {
		arena, err := p.segment.Arena(rank)
		if err != nil {
			continue
		}
		h := at[arenaHeader](arena, 0)
		if atomic.LoadUint64(&h.magic) != arenaMagic || p.holderDead(rank) {
			continue
		}
		for i := range h.domains {
			if atomic.LoadUint64(&h.domains[i]) == id {
				return true
			}
		}
	}
	return false
}

func (x *xrcDomain) Close() error {
	if before, err := x.end("close_xrcd", "queue pairs and shared queues are in it"); before || err != nil {
		return err
	}
	p := x.ctx.p
	p.mu.Lock()
	for i := range p.domains {
		if o := &p.domains[i]; o.id == x.id && o.opens > 0 {
			if o.opens--; o.opens == 0 {
				o.id = 0
				atomic.StoreUint64(&p.head.domains[i], 0)
			}
		}
	}
	p.mu.Unlock()
	x.ctx.disown()
	return nil
}

// sharedNamed finds the shared queue that a request names.
func (p *Provider) sharedNamed(num uint32) (*peer, *sharedHeader) {
	bits, _ := p.srqRankBits()
	rank := int(num >> srqIndexBits & (1<<bits - 1))
	s := p.self
	if rank != p.cfg.Rank {
		if s = p.neighbour(rank); s == nil {
			return nil, nil
		}
	}
	return s, s.sharedBy(num&(1<<srqIndexBits-1) + 1)
}

// neighbour finds the peer of a rank of the segment.
func (p *Provider) neighbour(rank int) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.peers {
		if s.inside && s.rank == rank {
			return s
		}
	}
	return nil
}

// A namedQueue is the shared queue that requests named last.
type namedQueue struct {
	num uint32
	s   *peer
	h   *sharedHeader
}

// take takes a receive request for the target c from the shared queue num.
// right is false when the target must not.
func (x *namedQueue) take(p *Provider, c *queueContext, num uint32) (tk ticket, ok, right bool) {
	if x.h == nil || x.num != num {
		s, h := p.sharedNamed(num)
		if h == nil {
			return tk, false, false
		}
		*x = namedQueue{num, s, h}
	}
	within := atomic.LoadUint64(&c.scope)
	member := func() bool {
		return num != 0 && within != 0 && atomic.LoadUint32(&x.h.num) == num && atomic.LoadUint64(&x.h.scope) == within
	}
	if !member() {
		return tk, false, false
	}
	tk, ok = x.s.take(x.h, p.cfg.Rank)
	if !ok {
		x.s.hunger(x.h, atomic.LoadUint32(&x.h.cq))
		if tk, ok = x.s.take(x.h, p.cfg.Rank); !ok {
			return tk, false, true
		}
	}
	tk.cq = atomic.LoadUint32(&x.h.cq)
	// The process that closes the queue sees the claim, or this sees that it has gone.
	if !member() {
		tk.giveBack()
		return tk, false, false
	}
	return tk, true, true
}

// openedQP is a target queue pair of another process, or of this one, that was
// opened by its number.
type openedQP struct {
	rdma.UnsupportedQP
	x      *xrcDomain
	c      *queueContext
	num    uint32
	mine   *queuePair // when it is of this provider
	closed atomic.Bool
}

func (c *context) OpenQP(num uint32, xrcd rdma.XRCD) (rdma.QP, error) {
	bad := func(f string, a ...any) (rdma.QP, error) { return nil, opError("open_qp", rdma.ErrInvalid, f, a...) }
	x, ok := xrcd.(*xrcDomain)
	if !ok || x.ctx != c {
		return bad("expected an XRC domain of this context")
	}
	p := c.p
	unlock, err := p.lockDomains()
	if err != nil {
		return bad("%v", err)
	}
	defer unlock()
	target := p.targetNumbered(num, x.id)
	if target == nil {
		return bad("no target queue pair %#x is in the domain", num)
	}
	if err := x.adopt("open_qp"); err != nil {
		return nil, err
	}
	o := &openedQP{x: x, c: target, num: num}
	if i := num & (maxQueues - 1); int(i) < len(p.queues) && target == &p.queues[i] {
		o.mine = p.byQPN.get(i)
	}
	atomic.AddUint32(&target.opens, 1)
	return o, nil
}

// targetNumbered finds a target queue pair of a domain among all processes of
// the segment. Called with the domains locked.
func (p *Provider) targetNumbered(num uint32, domain uint64) *queueContext {
	for rank := range p.segment.Ranks() {
		arena, err := p.segment.Arena(rank)
		if err != nil || atomic.LoadUint64(&at[arenaHeader](arena, 0).magic) != arenaMagic || p.holderDead(rank) {
			continue
		}
		queues := tableAt[queueContext](arena, p.layout.queueAt, p.layout.queues)
		if i := num & (maxQueues - 1); int(i) < len(queues) {
			c := &queues[i]
			if atomic.LoadUint32(&c.num) == num && atomic.LoadUint64(&c.scope) == domain {
				return c
			}
		}
	}
	return nil
}

func (o *openedQP) PD() rdma.PD {
	if o.mine != nil {
		return o.mine.pd
	}
	return nil
}

func (o *openedQP) Num() uint32 { return o.num }

func (o *openedQP) State() rdma.QPState {
	if o.mine != nil {
		return o.mine.State()
	}
	return rdma.QPState(atomic.LoadUint32(&o.c.word) & queueState)
}

func (o *openedQP) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	if o.mine != nil {
		return o.mine.Query()
	}
	return rdma.QPAttr{State: o.State()}, rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: o.x}
}

// Modify is left to the process that has made the queue pair: its attributes are in
// its heap, and so is what a step to ERR or RESET flushes and waits for.
func (o *openedQP) Modify(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	if o.mine != nil {
		return o.mine.Modify(attr, mask)
	}
	return &rdma.OpError{Op: "modify_qp", Detail: "the queue pair is another process's", Err: rdma.ErrNotSupported}
}

func (o *openedQP) PostSend([]rdma.SendWR) (int, error) { return 0, errTargetPost("post_send") }
func (o *openedQP) PostRecv([]rdma.RecvWR) (int, error) { return 0, errTargetPost("post_recv") }

func errTargetPost(op string) error {
	return &rdma.OpError{Op: op, Detail: "a queue pair of type XRC_RECV has no queues of its own", Err: rdma.ErrInvalid}
}

// Close leaves the queue pair to the others. When its maker has closed it too,
// the maker's process takes it away.
func (o *openedQP) Close() error {
	if o.closed.Swap(true) {
		return nil
	}
	for {
		n := atomic.LoadUint32(&o.c.opens)
		if n == 0 || atomic.CompareAndSwapUint32(&o.c.opens, n, n-1) {
			break
		}
	}
	o.x.disown()
	if o.mine != nil {
		return o.mine.pd.ctx.reap(false)
	}
	return nil
}

// orphan keeps a target queue pair that its program has closed while others have
// it open. It is false when no process has. It holds neither its protection domain nor
// its XRC domain: the process that has it open may be another process, or have died.
func (q *queuePair) orphan() bool {
	if q.init.Type != rdma.XRCRecv || atomic.LoadUint32(&q.own.opens) == 0 {
		return false
	}
	ctx := q.pd.ctx
	ctx.mu.Lock()
	q.ending.orphaned = true
	ctx.orphans = append(ctx.orphans, q)
	ctx.mu.Unlock()
	q.leaveSRQ()
	q.pd.disown()
	return true
}

// reap destroys the orphans that no process has open any more, or all.
func (c *context) reap(all bool) (err error) {
	c.mu.Lock()
	kept, dead := c.orphans[:0:0], []*queuePair(nil)
	for _, q := range c.orphans {
		if all || atomic.LoadUint32(&q.own.opens) == 0 {
			dead = append(dead, q)
		} else {
			kept = append(kept, q)
		}
	}
	c.orphans = kept
	c.mu.Unlock()
	for _, q := range dead {
		if e := q.closeNow(); e != nil {
			err = e
		}
	}
	return err
}
