package soft

import (
	"fmt"
	"math"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// mkey is a memory key with a layout. The layout is in the arena, for peers, and
// in the owner's heap, for itself. The regions that it names are looked up at each
// access: one that has been deregistered meanwhile fails the request.
//
//	FREE -> (WRRegMkey) -> LAID OUT -> (WRRegMkey) -> LAID OUT, (WRLocalInv) -> FREE
type mkey struct {
	d       *domain
	index   uint32
	key     uint32
	entries int
	at      uint64 // of the layout in the arena

	turn sync.Mutex // held by the goroutine that closes it, before any other lock

	mu     sync.Mutex // guards what follows; after queues' locks
	laid   *region    // what the key opens, nil for nothing
	closed bool
}

// A layout is pieces that are gone through round by round, each of which takes
// a block from every piece. A list is a layout of one round.
type layoutHeader struct {
	pieces, repeat uint32
	round          uint64 // bytes in a round
}

// A piece is one of them.
type piece struct {
	start       uint64 // where its block begins in a round
	addr        uint64 // of its first block
	count, skip uint32 // bytes in a block, and between two of them
	lkey        uint32
	_           uint32
}

const (
	layoutHeaderSize = 16
	pieceEntrySize   = 32
	maxMkeyEntries   = 1 << 16
)

// An mkeyLayout is a layout as its owner has it. It never changes.
type mkeyLayout struct {
	layoutHeader
	list []piece
}

func (d *domain) CreateMkey(entries int) (rdma.Mkey, error) {
	const op = "create_mkey"
	if entries < 1 || entries > maxMkeyEntries {
		return nil, &rdma.OpError{Op: op, Detail: fmt.Sprintf("found %d entries, expected 1 to %d", entries, maxMkeyEntries), Err: rdma.ErrInvalid}
	}
	at_, _, err := d.p.allocate(layoutSize(entries))
	if err != nil {
		return nil, &rdma.OpError{Op: op, Err: err}
	}
	r := &region{}
	if err := d.take(op, r); err != nil {
		d.p.release(at_, layoutSize(entries))
		return nil, err
	}
	return &mkey{d: d, index: r.index, key: r.key, entries: entries, at: at_}, nil
}

func layoutSize(entries int) uint64 { return layoutHeaderSize + uint64(entries)*pieceEntrySize }

func (k *mkey) PD() rdma.PD  { return k.d }
func (k *mkey) LKey() uint32 { return k.key }
func (k *mkey) RKey() uint32 { return k.key }

// checkLayout judges a layout as a post does: what is no layout, whatever lies
// behind its keys.
func (c *context) checkLayout(wr *rdma.SendWR) (wrong string) {
	k, ok := wr.Mkey.(*mkey)
	if !ok || k.d.ctx != c || wr.Layout == nil {
		return "there must be a key of this context, and a layout"
	}
	return wr.Layout.Wrong(k.entries)
}

// mkeyLayoutOf is the layout of a request, without pieces of no bytes.
func mkeyLayoutOf(l *rdma.MkeyLayout) *mkeyLayout {
	w := &mkeyLayout{layoutHeader: layoutHeader{repeat: 1}}
	add := func(addr uint64, count, skip, lkey uint32) {
		if count > 0 {
			w.list = append(w.list, piece{start: w.round, addr: addr, count: count, skip: skip, lkey: lkey})
			w.round += uint64(count)
		}
	}
	for _, s := range l.List {
		add(s.Addr, s.Length, 0, s.LKey)
	}
	for _, s := range l.Interleaved {
		w.repeat = l.Repeat
		add(s.Addr, s.Count, s.Skip, s.LKey)
	}
	w.pieces = uint32(len(w.list))
	return w
}

// behind tells whether all that a layout names is there: regions of the domain
// that hold every block and grant what the layout does.
func (w *mkeyLayout) behind(d *domain, access rdma.Access) bool {
	need := rdma.Access(0)
	if access&(rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteAtomic) != 0 {
		need = rdma.AccessLocalWrite
	}
	for i := range w.list {
		s := &w.list[i]
		r := d.p.byKey.get(s.lkey >> 8)
		// A layout does not name layouts.
		if r == nil || r.key != s.lkey || r.pd != d || r.window || r.kind == kindMkey || need&^r.access != 0 {
			return false
		}
		// Both factors have 32 bits and a bit.
		rounds, stride := uint64(w.repeat-1), uint64(s.count)+uint64(s.skip)
		if rounds > 0 && stride > (math.MaxUint64-uint64(s.count))/rounds || !r.holds(s.addr, rounds*stride+uint64(s.count)) {
			return false
		}
	}
	return true
}

// begin closes the key, if it may be laid out as asked.
func (k *mkey) begin(q *queuePair, wr *rdma.SendWR) (*drain, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.d != q.pd || !mkeyLayoutOf(wr.Layout).behind(k.d, wr.Layout.Access) {
		return nil, false
	}
	return k.withdraw(q), true
}

// withdraw closes the key. Called with mu held.
func (k *mkey) withdraw(q *queuePair) *drain {
	if k.laid == nil {
		return nil
	}
	k.d.p.withdraw(k.index)
	return k.d.p.drainOf(uint64(k.index)+1, q, true)
}

// end opens it.
func (k *mkey) end(wr *rdma.SendWR) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.laid = nil
	if k.closed {
		return false
	}
	p, w := k.d.p, mkeyLayoutOf(wr.Layout)
	*at[layoutHeader](p.arena, k.at) = w.layoutHeader
	copy(tableAt[piece](p.arena, k.at+layoutHeaderSize, len(w.list)), w.list)
	k.laid = &region{object: k, pd: k.d, index: k.index, key: k.key, kind: kindMkey,
		access: wr.Layout.Access, length: uint64(w.repeat) * w.round, offset: k.at, layout: w}
	p.publish(k.laid)
	return true
}

func (k *mkey) invalidate(q *queuePair, _ uint32) (*drain, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.laid == nil {
		return nil, false
	}
	return k.withdraw(q), true
}

func (k *mkey) invalidated(uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.laid = nil
}

// endBy is no way to end a layout: others may be in the middle of an operation
// on it, which the sender cannot wait for.
func (k *mkey) endBy(_, _ uint32) bool { return false }

func (k *mkey) Close() error {
	k.turn.Lock()
	defer k.turn.Unlock()
	k.mu.Lock()
	closed := k.closed
	k.closed = true
	k.mu.Unlock()
	if closed {
		return nil
	}
	p := k.d.p
	p.withdraw(k.index)
	if p.drain(uint64(k.index) + 1) {
		k.d.disown()
		return &rdma.OpError{Op: "destroy_mkey", Detail: stuckDetail(), Err: errStuck}
	}
	p.release(k.at, layoutSize(k.entries))
	k.d.giveBack(k.index)
	return nil
}
