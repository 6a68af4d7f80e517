package rank

import (
	"cmp"
	"context"
	"reflect"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank/internal/datatype"
)

// A call is one collective of this rank: its operands, bound to the arguments that
// the team takes. All forms of a collective bind alike, and differ in what they do
// then:
//
//	blocking     begin -- bind -- run
//	started      begin -- bind -- launch: a Request, over when the team says so
//	persistent   begin -- bind -- keep: a Request, launched by each Start
//
// Between begin and the end of run, launch or keep the rank is inside a call of its
// world. The first mistake is kept in err, and binding stops.
//
// Data with gaps travels packed: it is packed before the team's call and unpacked
// after. All other data is moved from and to where it lies.
type call struct {
	comm    *Comm
	op      string
	err     error
	entered bool // world.leave is owed

	args         coll.Args
	send, recv   side
	sends, recvs []coll.Part // the memory of args.Sends and args.Recvs

	// known is the arithmetic that was looked up last, for the next operand and
	// the next call.
	known struct {
		op        Op
		t         *Datatype
		elem      reflect.Type
		typed     bool
		reduction kernel.Reduction
		raw       bool
	}
	sorted []coll.Part // of apart
	shape  shape       // to remember it under; its kind 0: not
	lists  lists       // and of a v form

	// Of a request.
	pending    *coll.Pending
	over       bool
	outcome    error // coll's
	persistent bool
	next       *call // recycled
}

// A side is the input or the output of a call.
type side struct {
	mem    []byte  // what the team gets
	packed []byte  // instead of the operand's own memory
	stages []stage // what of packed is from or for where
	before bool    // output: its stages are packed too, for it holds input
	stays  bool    // output: it holds nothing but input, and is not written
}

// A stage is items with gaps and the place of their packed data.
type stage struct {
	t     *datatype.Type
	mem   []byte // from the origin of the first item on
	at, n int    // in packed
}

// begin prepares a call of c that blocks. The world has one at a time.
func (c *Comm) begin(op string) *call {
	if err := c.enterCollective(); err != nil {
		return &call{comm: c, op: op, err: err}
	}
	k := &c.world.collectives.blocking
	if c.world.turns != nil {
		k = c.world.collectives.take() // there may be several
	}
	k.comm, k.op, k.entered = c, op, true
	return k
}

// beginRequest prepares a call of c that becomes a request.
func (c *Comm) beginRequest(op string) *call {
	if err := c.enterCollective(); err != nil {
		return &call{comm: c, op: op, err: err}
	}
	k := c.world.collectives.take()
	k.comm, k.op, k.entered = c, op, true
	return k
}

// collectives are a world's calls of collectives, kept for the next use.
type collectives struct {
	blocking call  // the one that runs
	idle     *call // of requests
}

// take gives the call of a request.
func (s *collectives) take() *call {
	k := s.idle
	if k == nil {
		return new(call)
	}
	s.idle, k.next = k.next, nil
	return k
}

// reset forgets the operands and keeps the memory that is used again.
func (k *call) reset() {
	k.args = coll.Args{}
	if k.shape.kind == coll.Exchange {
		k.lists = lists{}
	}
	k.shape.kind = 0
	k.send.reset()
	k.recv.reset()
	k.sends, k.recvs = k.sends[:0], k.recvs[:0]
	k.comm, k.err, k.outcome, k.entered, k.persistent = nil, nil, nil, false, false
}

// packedMost is how much packed memory a call keeps for its next use.
const packedMost = 1 << 20

func (s *side) reset() {
	clear(s.stages)
	s.mem, s.stages, s.before, s.stays = nil, s.stages[:0], false, false
	if cap(s.packed) > packedMost {
		s.packed = nil
	}
	s.packed = s.packed[:0]
}

// run is the rest of a blocking call.
func (k *call) run(ctx context.Context) error {
	k.apart()
	c, op, err := k.comm, k.op, k.err
	if !k.entered {
		return c.fail(op, -1, err)
	}
	if err != nil {
		err = c.fail(op, -1, err)
	} else {
		k.bound()
		k.pack()
		if n := c.world.narrator; n != nil {
			n.collective(k)
		}
		if c.world.recorder != nil {
			k.record(false)
		}
		if err = c.team.Run(ctx, &k.args); err == nil {
			k.unpack()
			if k.shape.kind != 0 {
				k.remember()
			}
		} else {
			err = c.failCollective(op, err)
		}
	}
	if c.world.turns != nil {
		k.recycle()
	} else {
		k.reset()
	}
	c.world.leave()
	return err
}

// launch is the rest of a call that goes on by itself.
func (k *call) launch() (Request, error) {
	if err := k.check(); err != nil {
		return Request{}, err
	}
	c := k.comm
	defer c.world.leave()
	k.bound()
	r := c.world.newRequest(c, k.op)
	if err := k.start(); err != nil {
		r.retire()
		k.recycle()
		return Request{}, err
	}
	return r.started(k), nil
}

// keep is the rest of making a persistent call.
func (k *call) keep() (Request, error) {
	if err := k.check(); err != nil {
		return Request{}, err
	}
	c := k.comm
	defer c.world.leave()
	k.bound()
	k.persistent = true
	return c.world.newRequest(c, k.op).inactive(k), nil
}

// check ends a request that was not bound without a mistake.
func (k *call) check() error {
	k.apart()
	if k.err == nil {
		return nil
	}
	c := k.comm
	err := c.fail(k.op, -1, k.err)
	if k.entered {
		k.recycle()
		c.world.leave()
	}
	return err
}

func (k *call) recycle() {
	s := &k.comm.world.collectives
	k.reset()
	k.next, s.idle = s.idle, k
}

// start begins a call that goes on by itself; see pending.
func (k *call) start() error {
	c := k.comm
	switch {
	case c.barred:
		return c.fail(k.op, -1, c.unusable())
	case c.revoked != nil:
		return c.fail(k.op, -1, revokedBy(c.revoked))
	}
	k.pack()
	if n := c.world.narrator; n != nil {
		n.collective(k)
	}
	if c.world.recorder != nil {
		k.record(true)
	}
	var p *coll.Pending
	var err error
	bytes := max(len(k.args.Send.Mem), len(k.args.Recv.Mem))
	if c.world.beside.defers() || c.world.beside.moves(bytes) {
		p, err = c.team.Defer(&k.args)
	} else {
		p, err = c.team.Start(&k.args)
	}
	if err != nil {
		return c.failCollective(k.op, err)
	}
	k.pending, k.over, k.outcome = p, false, nil
	if k.args.Reduction.ID >= kernel.UserID {
		c.programs++
	}
	if c.started++; c.started == 1 {
		c.world.traffic.add(c.team)
	}
	if c.world.beside.defers() {
		c.world.beside.tell()
	} else {
		c.world.beside.tellOf(bytes)
	}
	return nil
}

func (k *call) done() bool {
	if k.over {
		return true
	}
	over, err := k.pending.Done()
	if !over {
		return false
	}
	k.over, k.outcome, k.pending = true, err, nil
	c := k.comm
	if k.args.Reduction.ID >= kernel.UserID {
		c.programs--
	}
	if c.started--; c.started == 0 {
		c.world.traffic.remove(c.team)
	}
	return true
}

func (k *call) finish(st *Status) error {
	*st = emptyStatus
	err := k.outcome
	if err == nil {
		k.unpack()
	} else {
		err = k.comm.failCollective(k.op, err)
	}
	if !k.persistent {
		k.recycle()
	}
	return err
}

// cancel does nothing: a collective cannot be cancelled, as the other ranks need it.
func (k *call) cancel() {}

func (k *call) free() { k.recycle() }

// bound gives the team's arguments the memory that binding has found.
func (k *call) bound() {
	k.args.Sends, k.args.Recvs = k.sends, k.recvs
	k.comm.buffer(&k.args.Send, k.send.memory())
	k.comm.buffer(&k.args.Recv, k.recv.memory())
}

// memory is what the team gets: packed data has grown since.
func (s *side) memory() []byte {
	if len(s.stages) > 0 {
		return s.packed
	}
	return s.mem
}

func (k *call) pack() {
	k.send.pack()
	if k.recv.before {
		k.recv.pack()
	}
}

func (s *side) pack() {
	for i := range s.stages {
		g := &s.stages[i]
		g.t.Pack(s.packed[g.at:g.at+g.n], g.mem, 0)
	}
}

func (k *call) unpack() {
	s := &k.recv
	if s.stays {
		return
	}
	for i := range s.stages {
		g := &s.stages[i]
		g.t.Unpack(g.mem, s.packed[g.at:g.at+g.n], 0)
	}
}

// stage has items with gaps travel packed, and says where.
func (s *side) stage(t *datatype.Type, mem []byte, count int) (at int) {
	at, n := len(s.packed), count*t.Size()
	if cap(s.packed) < at+n {
		s.packed = append(make([]byte, 0, max(at+n, 2*cap(s.packed))), s.packed...)
	}
	s.packed = s.packed[:at+n]
	s.stages = append(s.stages, stage{t: t, mem: mem, at: at, n: n})
	return at
}

// fault keeps the first mistake of a call.
func (k *call) fault(err error) {
	if k.err == nil {
		k.err = err
	}
}

// whole has all of b be a side. It gives the length of its data.
func (k *call) whole(s *side, b *Buffer, u use) int {
	if k.err != nil {
		return 0
	}
	if err := b.check(k.comm.world, u); err != nil {
		k.fault(err)
		return 0
	}
	n := b.size()
	switch {
	case b.solid():
		s.mem = b.bytes()
	case n > 0:
		s.stage(b.core(), b.mem, b.count)
	}
	return n
}

// input is whole of what is sent, or nothing where the operand says in place. It
// gives the length of the data.
func (k *call) input(b *Buffer) (n int, here bool) {
	if b.here() {
		return 0, true
	}
	return k.whole(&k.send, b, toRead), false
}

// output is whole of what is received; here: it holds the input too.
func (k *call) output(b *Buffer, here bool) int {
	k.recv.before = here
	return k.whole(&k.recv, b, toWrite)
}

// here tells whether a send operand says in place.
func (b *Buffer) here() bool { return b.in || !b.typed && b.mem == nil && b.elem != nil }

// A ragged is an operand of blocks of different lengths.
type ragged struct {
	s *side
	b *Buffer
}

// ragged checks the operand of a v form.
func (k *call) ragged(s *side, b *Buffer, u use) ragged {
	if k.err == nil {
		if err := b.check(k.comm.world, u); err != nil {
			k.fault(err)
		}
	}
	return ragged{s, b}
}

// block is count items, displ items on from the beginning: where their data is in
// the side and how long.
func (k *call) block(r ragged, count, displ int) (off, n int) {
	if k.err != nil {
		return 0, 0
	}
	b := r.b
	if count < 0 || displ < 0 || count > b.count-displ {
		k.fault(badClass(ClassCount, "a block of %d items at displacement %d does not fit into a buffer of %d items", count, displ, b.count))
		return 0, 0
	}
	t := b.core()
	n = count * t.Size()
	if b.solid() {
		r.s.mem = b.bytes()
		return displ * t.Size(), n
	}
	if n == 0 {
		return 0, 0
	}
	_, extent := t.Extent()
	return r.s.stage(t, b.mem[displ*extent:], count), n
}

// item is the block of a rank with counts and displacements; without displacements
// the blocks follow each other, and *next is where the next one begins.
func (k *call) item(r ragged, counts, displs []int, rank int, next *int) (off, n int) {
	displ := *next
	if displs != nil {
		displ = displs[rank]
	}
	*next += counts[rank]
	return k.block(r, counts[rank], displ)
}

// counted checks the lengths of counts and displacements.
func (k *call) counted(name string, counts, displs []int, want int) bool {
	switch {
	case k.err != nil:
	case len(counts) != want:
		k.fault(badClass(ClassCount, "%d %s counts, expected %d", len(counts), name, want))
	case displs != nil && len(displs) != want:
		k.fault(badClass(ClassCount, "%d %s displacements, expected %d", len(displs), name, want))
	}
	return k.err == nil
}

// to and from name a part of the send and of the receive side.
func (k *call) to(member, off, n int) {
	k.sends = append(k.sends, coll.Part{Peer: member, Off: off, N: n})
}
func (k *call) from(member, off, n int) {
	k.recvs = append(k.recvs, coll.Part{Peer: member, Off: off, N: n})
}

// apart refuses an exchange that would write a place of the receive operand twice.
func (k *call) apart() {
	if k.err != nil || k.args.Kind != coll.Exchange || len(k.recv.stages) > 0 {
		return // what is packed has places of its own
	}
	rising, end := true, 0
	for i := range k.recvs {
		p := &k.recvs[i]
		rising = rising && (p.Off >= end || p.N == 0)
		end = max(end, p.Off+p.N)
	}
	if rising {
		return
	}
	k.sorted = append(k.sorted[:0], k.recvs...)
	slices.SortFunc(k.sorted, func(a, b coll.Part) int { return cmp.Compare(a.Off, b.Off) })
	end = 0
	for _, p := range k.sorted {
		if p.N > 0 && p.Off < end {
			k.fault(badClass(ClassBuffer, "two blocks overlap in recv at byte %d", p.Off))
			return
		}
		end = max(end, p.Off+p.N)
	}
}

// vectors binds the operands of a reduction: the send operand, and where out is not
// nil the receive operand. It gives their lengths; here: the data is in out.
func (k *call) vectors(in, out *Buffer, op Op) (sent, received int, here bool) {
	if k.err != nil {
		return 0, 0, false
	}
	here = out != nil && in.here()
	if !here {
		sent = k.vector(&k.send, in, op, toRead)
	}
	if out != nil {
		k.recv.before = here
		received = k.vector(&k.recv, out, op, toWrite)
	}
	return sent, received, here
}

// vector binds one operand of a reduction, and with the first one the arithmetic.
func (k *call) vector(s *side, b *Buffer, op Op, u use) (n int) {
	if k.err != nil {
		return 0
	}
	err := b.check(k.comm.world, u) // refuses InPlace too
	raw := false
	if err == nil && b.elem == nil {
		err = badClass(ClassBuffer, "the buffer is empty and has no type")
	}
	if err == nil {
		raw, err = k.arithmetic(b, op)
	}
	if err != nil {
		k.fault(err)
		return 0
	}
	switch {
	case raw:
		_, extent := b.core().Extent()
		if b.count > len(b.mem)/extent { // the padding of the last one
			k.fault(badClass(ClassBuffer, "%d elements of %d bytes do not fit into a slice of %d bytes", b.count, extent, len(b.mem)))
			return 0
		}
		s.mem = b.mem[:b.count*extent]
		return len(s.mem)
	case b.solid():
		s.mem = b.bytes()
	case b.size() > 0:
		s.stage(b.core(), b.mem, b.count)
	}
	return b.size()
}

// arithmetic finds the reduction of an operand's elements, which is that of the
// operand before. raw is as with Op.reduction.
func (k *call) arithmetic(b *Buffer, op Op) (raw bool, err error) {
	f := &k.known
	if f.t != b.t || f.elem != b.elem || f.typed != b.typed || f.op != op {
		r, raw, err := op.reduction(b)
		if err != nil {
			return false, err
		}
		f.op, f.t, f.elem, f.typed, f.reduction, f.raw = op, b.t, b.elem, b.typed, r, raw
	}
	have := &k.args.Reduction
	switch {
	case have.Func == nil:
		*have = f.reduction
	case have.Elem != f.reduction.Elem || have.ID != f.reduction.ID:
		return false, badArgument("the types differ: send holds %v, but recv holds %v", have, b.t)
	}
	return f.raw, nil
}

// buffer makes b memory as a collective takes it. It is filled in place: a copy of
// what was just stored field by field would wait for the stores.
func (c *Comm) buffer(b *coll.Buffer, mem []byte) { b.Mem, b.MR = mem, c.world.regions.find(mem) }
