package rank

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// PsendInit prepares a send of partitions of equal length (MPI_Psend_init). After [Request.Start]
// the program releases each partition with [Request.Pready], in any order. The n-th PsendInit for a
// rank and tag matches the receiver's n-th PrecvInit for this rank and tag; it may divide the same
// bytes into another number of partitions. The request completes after all partitions were released.
func PsendInit[T Element](c *Comm, buf []T, partitions, dst, tag int) (Request, error) {
	return c.PsendInit(Of(buf), partitions, dst, tag)
}

// PrecvInit prepares a partitioned receive (MPI_Precv_init); [Request.Parrived]
// reports which partitions have arrived. src and tag must not be wildcards.
func PrecvInit[T Element](c *Comm, buf []T, partitions, src, tag int) (Request, error) {
	return c.PrecvInit(Of(buf), partitions, src, tag)
}

// PsendInit is [PsendInit] of a Buffer.
func (c *Comm) PsendInit(b Buffer, partitions, dst, tag int) (Request, error) {
	return c.partition("psend_init", b, partitions, dst, tag, true)
}

// PrecvInit is [PrecvInit] into a Buffer.
func (c *Comm) PrecvInit(b Buffer, partitions, src, tag int) (Request, error) {
	return c.partition("precv_init", b, partitions, src, tag, false)
}

// Pready releases partition i of a started PsendInit to be sent
// (MPI_Pready). Its memory belongs to the request from then on.
func (q Request) Pready(i int) error { return q.PreadyRange(i, i) }

// PreadyRange is Pready for the partitions from low to high, including high (MPI_Pready_range).
func (q Request) PreadyRange(low, high int) error {
	return q.partitioned("pready", true, func(p *partitioned) error {
		for i := low; i <= high; i++ {
			if err := p.ready(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// PreadyList is Pready for several partitions (MPI_Pready_list).
func (q Request) PreadyList(partitions []int) error {
	return q.partitioned("pready", true, func(p *partitioned) error {
		for _, i := range partitions {
			if err := p.ready(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Parrived reports whether partition i of a PrecvInit has arrived (MPI_Parrived).
// It may then be read, but not written until completion of the request was
// reported. The call makes progress. For an inactive request it is true.
func (q Request) Parrived(i int) (arrived bool, err error) {
	err = q.partitioned("parrived", false, func(p *partitioned) error {
		if i < 0 || i >= p.parts {
			return badArgument("partition %d of a request with %d partitions", i, p.parts)
		}
		if arrived = !p.request.active || p.peer == ProcNull || p.came(i); !arrived {
			p.comm.world.progress()
			if arrived = p.came(i); !arrived && p.failed == nil {
				p.comm.world.vain()
			}
		}
		if !arrived {
			return p.failed
		}
		return nil
	})
	return arrived, err
}

// partitioned calls f for the operation behind q.
func (q Request) partitioned(op string, sends bool, f func(*partitioned) error) error {
	return q.do(op, func(r *request) error {
		p, ok := r.what.(*partitioned)
		switch {
		case !ok || p.sends != sends:
			return badClass(ClassRequest, "the request is one of %s", r.op)
		case sends && !r.active:
			return badClass(ClassRequest, "the request is not active: start it first")
		}
		return f(p)
	})
}

// A partitioned is a send or a receive in partitions. Each partition of the sender is a
// message with a tag of its own, of a range that the sender picks when it is prepared.
// One message tells the receiver: those of one rank and tag are told in the order of
// their calls, on a context of their own, and so received.
//
//	sender     told -- Start --> active -- Pready of all, all have left --> over
//	receiver   -- Start --> active -- told, all have come --> over
type partitioned struct {
	request *request
	comm    *Comm
	sends   bool
	peer    int // in the communicator
	to      int // in the world
	tag     int
	buf     Buffer
	parts   int
	data    []byte // what travels: the buffer's memory, or packed
	packing *packing

	intro     [introPartitioned]byte
	introduce *p2p.Op // the message that tells, under way
	told      bool
	waits     bool // among the world's active, until told

	// The sender's partitions, of which a receiver learns.
	base, theirs int
	ops          []*p2p.Op
	begun, over  []bool
	left         int // that are not over
	unpacked     []bool
	bad          error // the two sides do not fit
	failed       error // of this start
}

// introPartitioned is the length of what a sender tells: first tag, partitions, bytes.
const introPartitioned = 16

var _ pending = (*partitioned)(nil)
var _ advancer = (*partitioned)(nil)

func (c *Comm) partition(op string, b Buffer, parts, peer, tag int, sends bool) (Request, error) {
	if err := c.enter(); err != nil {
		return Request{}, c.fail(op, -1, err)
	}
	w := c.world
	defer w.leave()
	e, to, err := c.envelope(c.introContext(), peer, tag, false)
	use := toWrite
	if sends {
		use = toRead
	}
	if err == nil {
		err = b.check(w, use)
	}
	switch {
	case err != nil:
	case parts < 1:
		err = badClass(ClassCount, "%d partitions: expected 1 or more", parts)
	case b.count%parts != 0:
		err = badClass(ClassCount, "%d items cannot be divided into %d equal partitions", b.count, parts)
	case sends && w.partitions > MaxTag-parts:
		err = badClass(ClassTag, "all 2^31 tags of partitions are used up")
	}
	if err != nil {
		return Request{}, c.fail(op, -1, err)
	}
	p := &partitioned{comm: c, sends: sends, peer: peer, to: to, tag: tag, buf: b, parts: parts}
	if b.solid() {
		p.data = b.bytes()
	} else {
		p.packing = w.packings.get(b.size())
		p.data = p.packing.mem[:b.size()]
	}
	switch {
	case peer == ProcNull:
	case sends:
		p.told, p.base, p.theirs = true, w.partitions, parts
		w.partitions += parts
		binary.NativeEndian.PutUint32(p.intro[0:], uint32(p.base))
		binary.NativeEndian.PutUint32(p.intro[4:], uint32(parts))
		binary.NativeEndian.PutUint64(p.intro[8:], uint64(len(p.data)))
		p.introduce, err = w.messages.Isend(p.intro[:], nil, e, to, p2p.Standard)
	default:
		p.unpacked = make([]bool, parts)
		p.introduce, err = w.messages.Irecv(p.intro[:], nil, match.Envelope{Context: e.Context, Source: int32(to), Tag: e.Tag}, c.ranks)
	}
	if err != nil {
		w.packings.put(p.packing)
		return Request{}, c.fail(op, peer, err)
	}
	p.request = w.newRequest(c, op)
	p.reserve()
	return p.request.inactive(p), nil
}

// reserve makes room for what is known of the sender's partitions.
func (p *partitioned) reserve() {
	p.ops, p.begun, p.over = make([]*p2p.Op, p.theirs), make([]bool, p.theirs), make([]bool, p.theirs)
}

func (p *partitioned) start() error {
	p.failed = p.bad
	if p.peer == ProcNull {
		return nil
	}
	clear(p.begun)
	clear(p.over)
	clear(p.unpacked)
	if p.left = p.theirs; p.sends {
		return nil
	}
	if p.told {
		p.post()
	} else if p.learn(); !p.told && p.failed == nil {
		p.waits = true
		p.comm.world.traffic.add(p)
	}
	return nil
}

// learn takes what the sender has told, and posts the receives.
func (p *partitioned) learn() {
	if p.told || p.introduce == nil || !p.introduce.Done() {
		return
	}
	_, err := p.comm.world.messages.Finish(p.introduce)
	if p.introduce = nil; err != nil {
		p.bad = err // the sender has gone, or this was cancelled
		p.failed = err
		return
	}
	p.told = true
	p.base, p.theirs = int(binary.NativeEndian.Uint32(p.intro[0:])), int(binary.NativeEndian.Uint32(p.intro[4:]))
	total := binary.NativeEndian.Uint64(p.intro[8:])
	switch {
	case p.theirs < 1 || p.base > MaxTag-p.theirs || total%uint64(p.theirs) != 0:
		p.bad, p.theirs = fmt.Errorf("the sender announced %d partitions of %d bytes in all", p.theirs, total), 0
	case total > uint64(len(p.data)):
		p.bad = &TruncateError{Message: int(total), Buffer: len(p.data)}
	case total < uint64(len(p.data)):
		p.bad = badClass(ClassCount, "the sender has %d bytes, expected %d", total, len(p.data))
	}
	p.failed = p.bad
	p.reserve()
	p.left = p.theirs
	p.post()
}

// post starts the receives of all partitions. Where the sides do not fit they take
// nothing, and release the sender.
func (p *partitioned) post() {
	w := p.comm.world
	for i := range p.theirs {
		var into []byte
		if p.bad == nil {
			into = p.piece(i)
		}
		op, err := w.messages.Irecv(into, w.regions.find(into), match.Envelope{Context: p.comm.partContext(), Source: int32(p.to), Tag: int32(p.base + i), Type: p.buf.core().Mark()}, p.comm.ranks)
		p.begun[i], p.ops[i] = true, op
		if err != nil {
			p.end(i, err)
		}
	}
}

// piece is the sender's partition i of the data.
func (p *partitioned) piece(i int) []byte {
	n := len(p.data) / p.theirs
	return p.data[i*n : (i+1)*n : (i+1)*n]
}

// ready lets a partition leave.
func (p *partitioned) ready(i int) error {
	switch {
	case i < 0 || i >= p.parts:
		return badArgument("partition %d of a request with %d partitions", i, p.parts)
	case p.peer == ProcNull:
		return nil
	case p.begun[i]:
		return badArgument("Pready was already called for partition %d", i)
	}
	w, out := p.comm.world, p.piece(i)
	if p.packing != nil {
		p.buf.core().Pack(out, p.buf.mem, i*len(out))
	}
	p.begun[i] = true
	env := match.Envelope{Context: p.comm.partContext(), Source: int32(w.rank), Tag: int32(p.base + i), Type: p.buf.core().Mark()}
	op, err := w.messages.Isend(out, w.regions.find(out), env, p.to, p2p.Standard)
	if p.ops[i] = op; err != nil {
		p.end(i, err)
	}
	return nil // what has failed is told when the request is waited for
}

// end notes the end of a partition.
func (p *partitioned) end(i int, err error) {
	p.ops[i], p.over[i] = nil, true
	p.left--
	if err != nil && p.failed == nil {
		p.failed = err
	}
}

// settled tells whether the sender's partition i is over.
func (p *partitioned) settled(i int) bool {
	if !p.over[i] && p.ops[i] != nil && p.ops[i].Done() {
		_, err := p.comm.world.messages.Finish(p.ops[i])
		p.end(i, err)
	}
	return p.over[i]
}

// came tells whether the receiver's partition i is there.
func (p *partitioned) came(i int) bool {
	if p.learn(); !p.told || p.failed != nil {
		return false
	}
	if p.unpacked[i] {
		return true
	}
	n := len(p.data) / p.parts
	if n > 0 {
		theirs := len(p.data) / p.theirs
		for j := i * n / theirs; j*theirs < (i+1)*n; j++ {
			if !p.settled(j) || p.failed != nil {
				return false
			}
		}
	} else if !p.done() {
		return false
	}
	if p.unpacked[i] = true; p.packing != nil {
		p.buf.core().Unpack(p.buf.mem, p.data[i*n:(i+1)*n], i*n)
	}
	return true
}

// Progress learns what the sender tells, so that partitions come while the rank is in
// other calls.
func (p *partitioned) Progress() bool {
	if p.learn(); !p.told && p.failed == nil {
		return false
	}
	p.idle()
	return true
}

// idle takes it from those that ask for progress.
func (p *partitioned) idle() {
	if p.waits {
		p.waits = false
		p.comm.world.traffic.remove(p)
	}
}

func (p *partitioned) done() bool {
	if p.peer == ProcNull {
		return true
	}
	if p.learn(); !p.told {
		return p.failed != nil
	}
	for i := range p.theirs {
		if p.left == 0 {
			break
		}
		p.settled(i)
	}
	return p.left == 0
}

func (p *partitioned) finish(st *Status) error {
	*st = emptyStatus
	if p.peer == ProcNull {
		if !p.sends {
			*st = nothing
		}
		return nil
	}
	p.idle()
	c := p.comm
	if !p.sends && p.failed == nil {
		for i := range p.parts {
			p.came(i) // and is unpacked
		}
		c.status(st, p2p.Status{Source: p.to, Tag: p.tag, Bytes: len(p.data)}, &p.buf)
	}
	switch err := p.failed; err {
	case nil:
		return nil
	case p2p.ErrCancelled:
		st.Cancelled = true
		return nil
	default:
		if te, ok := errors.AsType[*p2p.TypeError](err); ok {
			te.Tag = p.tag // not that of a partition
			err = c.mistyped(te)
		}
		return c.fail(p.request.op, p.peer, err)
	}
}

// cancel ends a receive of which nobody has told, and a send of which no more
// partitions will be ready: what has begun goes on.
func (p *partitioned) cancel() {
	w := p.comm.world
	if p.introduce != nil && !p.sends {
		w.messages.Cancel(p.introduce)
	}
	for i := range p.ops {
		switch {
		case p.ops[i] != nil && !p.sends:
			w.messages.Cancel(p.ops[i])
		case p.sends && !p.begun[i]:
			p.begun[i] = true
			p.end(i, p2p.ErrCancelled)
		}
	}
}

func (p *partitioned) free() {
	w := p.comm.world
	if p.introduce != nil {
		w.messages.Abandon(p.introduce)
		p.introduce = nil
	}
	w.packings.put(p.packing)
	p.packing = nil
}
