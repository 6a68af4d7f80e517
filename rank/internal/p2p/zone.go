package p2p

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// A zone is registered memory of a receiver that one peer writes messages of middle length into:
// of more than peer.eager bytes, and at most landMost. The sender posts the write and the header
// that says where the message is, together:
//
//	sender --write{data}, landed{tag, offset, length}--> receiver
//
// so the message takes one way where an announced one takes three. That pays between hosts, where a way takes
// several us. It is copied twice more, in memory that is in a cache: here, and out of the zone. The sender could leave out its copy, and wait for
// the device to say that the write is complete. Tried: a stream of messages of 64 KiB then takes 30 us for each instead of 36, and a
// ping-pong as long as now. But where the receiver computes behind its receive, that word comes when its device
// looks after it, after 1 ms, while an eager send has long returned.
//
// A peer gets a zone with the answer to the first message of such a length that it announces, unless
// zonesMost peers have one: then it goes on to announce.
//
// A zone is a ring, of which the sender alone keeps account, and of the same places in the memory of its copies:
//
//	oldest         head
//	 | in the zone  |  free
//
// The receiver copies messages out in the order in which they come, before it gives their credit back. So
// when it has given back n credits, the first n messages of the peer are out of the zone. A message
// stands in one piece, and the next one at the front when there is none in the zone: in a ping-pong it is the
// same memory again and again, which stays in the cache. One that finds no room is announced.
const (
	zoneBytes = 512 << 10
	landMost  = 128 << 10
	// zonesMost is how many peers get a zone. As many are written into, and what is touched of all that is below 8 MiB.
	zonesMost = 8
	zoneAlign = 64
)

// A zone is the sender's account of one.
type zone struct {
	address uint64
	key     uint32
	copies  rdma.MR // what is written into the zone is copied here before, to the same place
	mem     []byte  // of copies
	head    int     // where the next message goes
	stays   []stay  // messages that may be in it, in order
}

// A stay is a message in a zone.
type stay struct {
	sent  uint64 // peer.sent, when it had left
	begin int
}

// place finds room for n bytes in a zone of whose peer's messages the first taken are out of it.
func (z *zone) place(taken uint64, n int) (at int, ok bool) {
	out := 0
	for out < len(z.stays) && int64(taken-z.stays[out].sent) >= 0 {
		out++
	}
	if out > 0 {
		z.stays = append(z.stays[:0], z.stays[out:]...)
	}
	switch {
	case len(z.stays) == 0:
		return 0, n <= zoneBytes
	case z.stays[0].begin < z.head: // tail .. head is taken
		if z.head+n <= zoneBytes {
			return z.head, true
		}
		return 0, n <= z.stays[0].begin
	}
	return z.head, z.head+n <= z.stays[0].begin
}

// enter notes a message of n bytes at a place, under its number among the peer's.
func (z *zone) enter(sent uint64, at, n int) {
	z.stays = append(z.stays, stay{sent, at})
	z.head = min(at+(n+zoneAlign-1)&^(zoneAlign-1), zoneBytes)
}

// zones is the memory that peers write messages into.
type zones struct {
	pool
	lends func(peer int) bool // Config.Land
	left  int                 // how many more are lent
	given []rdma.MR           // of loans and of copies

	borrowed int // peers' zones that this rank writes into
}

// A loan is the receiver's end of a zone.
type loan struct {
	mr    rdma.MR
	mem   []byte
	told  bool // the peer knows of it
	bytes int  // of messages that came since the last report
}

// lend has a peer get a zone that has announced a message of some bytes which would have gone there.
func (z *zones) lend(p *peer, bytes uint64) {
	if p.loan != nil || z.left == 0 || bytes <= uint64(p.eager) || bytes > landMost || z.lends == nil || !z.lends(int(p.rank)) {
		return
	}
	mr, err := z.self.pd.AllocMR(zoneBytes, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	if err != nil {
		z.left = 0 // messages are announced
		return
	}
	z.left--
	z.given = append(z.given, mr)
	p.loan = &loan{mr: mr, mem: mr.Bytes()}
}

// grant has an answer carry the zone that a peer is to get.
func (l *loan) grant(h *header) {
	h.kind, h.length, h.address, h.key = granted, zoneBytes, l.mr.Addr(), l.mr.RKey()
	l.told = true
}

// message is a message that a peer says it has written; false: it is not within the zone.
func (l *loan) message(h *header) ([]byte, bool) {
	if l == nil || !l.told || h.length > landMost || h.address > zoneBytes-h.length {
		return nil, false
	}
	l.bytes += int(h.length)
	return l.mem[h.address:][:h.length:h.length], true
}

// borrow takes in the zone that a peer has granted; false: that makes no sense.
func (z *zones) borrow(p *peer, h *header) bool {
	if p.zone != nil || p.mapped || h.length != zoneBytes {
		return false
	}
	if z.borrowed == zonesMost {
		return true // messages are announced
	}
	mr, err := z.self.pd.AllocMR(zoneBytes, rdma.AccessLocalWrite)
	if err != nil {
		return true // messages are announced
	}
	z.borrowed++
	z.given = append(z.given, mr)
	p.zone = &zone{address: h.address, key: h.key, copies: mr, mem: mr.Bytes(), stays: make([]stay, 0, p.depth)}
	return true
}

// hear takes in how many messages a peer has taken, as it says in a message. What it has written into its
// control word meanwhile is newer.
func (m *memory) hear(p *peer, taken uint32) {
	word := &m.credit[p.rank]
	known := atomic.LoadUint64(word)
	if more := int32(taken - uint32(known)); more > 0 {
		atomic.CompareAndSwapUint64(word, known, known+uint64(more))
	}
}

// postLanded posts the write of a message of n bytes, whose copy is at a place, and the header that says so.
func (l *links) postLanded(p *peer, at, n int, h *header) {
	z := p.zone
	l.sge[0] = rdma.SGE{Addr: z.copies.Addr() + uint64(at), Length: uint32(n), LKey: z.copies.LKey()}
	l.two[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: l.sge[:], RemoteAddr: z.address + uint64(at), RKey: z.key}
	l.two[1] = rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: l.small[:h.put(l.small[:])]}
	before := p.Posted()
	err := p.Post(l.two[:], idOf(whatMark, p.rank, 0), false)
	if l.flying += int(p.Posted() - before); err != nil {
		l.lines.fail(p, err)
	}
}

// land sends a message for its peer's zone; false: that has no room.
func (out *outbound) land(p *peer, what kind, buf []byte, env match.Envelope, number uint32) bool {
	z := p.zone
	if z == nil || len(buf) > landMost || p.Room() < 2 || out.self.credits(p) <= 0 {
		return false
	}
	at, ok := z.place(atomic.LoadUint64(&out.self.credit[p.rank]), len(buf))
	if !ok {
		return false
	}
	p.sent++
	z.enter(p.sent, at, len(buf))
	copy(z.mem[at:], buf)
	out.wire.told(p)
	h := header{kind: what, source: uint32(out.self.rank), tag: env.Tag, context: env.Context, typ: env.Type, id: number, length: uint64(len(buf)), address: uint64(at), word: uint32(p.taken)}
	out.wire.postLanded(p, at, len(buf), &h) // a failure fails the peer
	return true
}

// arrivedIn handles a message that a peer has written into its zone.
func (pr *progress) arrivedIn(p *peer, h *header) (credit bool) {
	payload, ok := p.loan.message(h)
	if !ok {
		pr.lines.damaged(p)
		return false
	}
	pr.self.hear(p, h.word)
	if h.kind == landed {
		h.kind = eager
	} else {
		h.kind = eagerSync
	}
	h.inZone = true
	return pr.traffic.accept(p, h, payload)
}

// buffers are recycled, up to unexpectedMax bytes.
type buffers struct {
	free  [][]byte
	bytes int
}

func (bs *buffers) take(n int) []byte {
	if last := len(bs.free) - 1; last >= 0 {
		b := bs.free[last]
		bs.free, bs.bytes = bs.free[:last], bs.bytes-cap(b)
		if cap(b) >= n {
			return b[:n]
		}
	}
	return make([]byte, n)
}

func (bs *buffers) put(b []byte) {
	if bs.bytes+cap(b) <= unexpectedMax {
		bs.free, bs.bytes = append(bs.free, b), bs.bytes+cap(b)
	}
}
