package coll

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// A fabric is a network of plain memory: nodes with machines, and between each
// two a queue of writes under way that land in order, one piece at a time,
// whenever the test says so. What a put reads it reads when it lands. The fabric
// notes every breach of the rules.
type fabric struct {
	rng    *rand.Rand
	tuning tuning
	nodes  []*node
	busy   []*stream // queues with writes under way
	lame   *node     // makes a step seldom, if not nil
	// refuse makes ports say now and then that they have no room.
	refuse   bool
	mutate   func(*plan)    // spoils every plan, if not nil
	spoil    func(*machine) // spoils every machine before every step, if not nil
	breaches []string
	whole    [5]bool // in which calls all memory is mappable, else at random; by number
}

// A node is one member.
type node struct {
	fabric   *fabric
	rank     int
	machine  *machine
	lanes    []lane    // what each peer writes here
	queues   []*stream // to each peer
	reads    []*stream // of each peer's memory: later writes may overtake them
	epoch    int       // number of the call that runs, or ran last
	running  bool
	operands [operands][]byte
	exposed  []exposure     // every one there ever was; its index is the address
	mappable [operands]bool // in this call
}

type lane struct {
	headers  []uint64
	payloads [][]byte
	credit   uint16
}

type exposure struct {
	epoch int
	mem   []byte
}

// A stream is the writes from one node to another.
type stream struct {
	from, to *node
	writes   []write
	puts     int // of them
}

// A write is one RDMA write under way.
type write struct {
	what   byte // 'p'ayload, 'h'eader, 'c'redit, 'd'ata of a put, 'r'ead
	slot   int
	header uint64
	data   []byte // of a put: the source's own memory, not a copy; of a read: where it goes
	addr   int    // index in exposed
	off    int
	landed int
	seq    uint16
}

func newFabric(seed uint64, n int, t tuning) *fabric {
	f := &fabric{rng: rand.New(rand.NewPCG(seed, uint64(n))), tuning: t, refuse: true}
	f.tuning.mapped = f.rng.IntN(2) == 0
	if f.rng.IntN(4) > 0 {
		f.tuning.hosts = anyPlacement(f.rng, n)
	}
	for i := range f.whole {
		f.whole[i] = f.rng.IntN(2) == 0
	}
	for r := range n {
		f.nodes = append(f.nodes, &node{fabric: f, rank: r})
	}
	for _, d := range f.nodes {
		d.machine = newMachine(d, n, t.slots)
		for _, peer := range f.nodes {
			l := lane{headers: make([]uint64, t.slots), payloads: make([][]byte, t.slots)}
			for i := range l.payloads {
				l.payloads[i] = make([]byte, t.eager)
			}
			d.lanes = append(d.lanes, l)
			d.queues = append(d.queues, &stream{from: d, to: peer})
			d.reads = append(d.reads, &stream{from: d, to: peer})
		}
	}
	// Every channel begins somewhere, so that some counters wrap.
	for _, from := range f.nodes {
		for _, to := range f.nodes {
			begin := -uint16(f.rng.IntN(40))
			out, in, lane := &from.machine.channels[to.rank], &to.machine.channels[from.rank], &to.lanes[from.rank]
			out.sent, out.credited = begin, begin
			in.awaited, in.taken, in.told = begin, begin, begin
			from.lanes[to.rank].credit = begin
			for k := range uint16(t.slots) {
				lane.headers[int(begin-k)&(t.slots-1)] = sequenced(begin - k)
			}
		}
	}
	return f
}

func (f *fabric) breach(format string, args ...any) {
	if len(f.breaches) < 10 {
		f.breaches = append(f.breaches, fmt.Sprintf(format, args...))
	}
}

// The port of the node's machine.

func (d *node) header(peer, slot int) uint64  { return d.lanes[peer].headers[slot] }
func (d *node) payload(peer, slot int) []byte { return d.lanes[peer].payloads[slot] }
func (d *node) credit(peer int) uint16        { return d.lanes[peer].credit }
func (d *node) full() bool                    { return d.fabric.refuse && d.fabric.rng.IntN(8) == 0 }

func (d *node) post(peer int, writes ...write) bool {
	if d.full() {
		return false
	}
	d.fabric.enqueue(d.queues[peer], writes...)
	return true
}

func (f *fabric) enqueue(q *stream, writes ...write) {
	if len(q.writes) == 0 {
		f.busy = append(f.busy, q)
	}
	for _, w := range writes {
		if w.what == 'd' || w.what == 'r' {
			q.puts++
		}
	}
	q.writes = append(q.writes, writes...)
}

func (d *node) giveCredit(peer int, taken uint16) bool {
	return d.post(peer, write{what: 'c', seq: taken})
}

func (d *node) send(peer, slot int, payload []byte, header uint64) bool {
	seq := sequenceOf(header)
	if int(seq-1)&(d.fabric.tuning.slots-1) != slot {
		d.fabric.breach("rank %d sends message %d to slot %d", d.rank, seq, slot)
	}
	h := write{what: 'h', slot: slot, header: header, seq: seq}
	if payload == nil {
		return d.post(peer, h)
	}
	return d.post(peer, write{what: 'p', slot: slot, data: append([]byte(nil), payload...), seq: seq}, h)
}

func (d *node) put(peer int, to far, from loc, n, slot int, header uint64) bool {
	// The descriptor's address has the exposure in the upper half.
	w := write{what: 'd', addr: int(to.addr >> 32), off: int(uint32(to.addr)), data: d.operands[from.operand][from.off : from.off+n]}
	if header == 0 {
		return d.post(peer, w)
	}
	return d.post(peer, w, write{what: 'h', slot: slot, header: header, seq: sequenceOf(header)})
}

func (d *node) get(peer int, from far, to loc, n int) bool {
	if d.full() {
		return false
	}
	d.fabric.enqueue(d.reads[peer], write{what: 'r', addr: int(from.addr >> 32), off: int(uint32(from.addr)), data: d.operands[to.operand][to.off : to.off+n]})
	return true
}

func (d *node) flushed(peer int) bool {
	return !d.full() && d.queues[peer].puts == 0 && d.reads[peer].puts == 0
}

func (d *node) expose(at loc, n int) descriptor {
	d.exposed = append(d.exposed, exposure{d.epoch, d.operands[at.operand][at.off : at.off+n]})
	as := descriptor{addr: uint64(len(d.exposed)-1) << 32, n: uint64(n), rkey: uint32(d.rank)}
	if d.mappable[at.operand] {
		as.access = rdma.AccessRemoteRead | rdma.AccessRemoteWrite
	}
	return as
}

// view gives an exposed memory. Whether it is used when it must not be shows in
// what it holds then, see prove.
func (d *node) view(peer int, at *descriptor) []byte {
	x := d.fabric.nodes[peer].exposed[at.addr>>32]
	if at.access == 0 {
		return nil
	}
	return x.mem
}

// land lets the first write of a queue, or a part of it, take effect.
func (f *fabric) land(q *stream) (empty bool) {
	w := &q.writes[0]
	lane := &q.to.lanes[q.from.rank]
	channel := &q.to.machine.channels[q.from.rank]
	if w.what == 'p' || w.what == 'h' {
		if ahead := w.seq - channel.taken; int(ahead) > f.tuning.slots || ahead == 0 {
			f.breach("rank %d overwrites a slot at rank %d: message %d, taken %d", q.from.rank, q.to.rank, w.seq, channel.taken)
		}
	}
	switch w.what {
	case 'p':
		copy(lane.payloads[w.slot], w.data)
	case 'h':
		lane.headers[w.slot] = w.header
	case 'c':
		if back := int16(lane.credit - w.seq); back > 0 {
			f.breach("credit of rank %d at rank %d goes back from %d to %d", q.from.rank, q.to.rank, lane.credit, w.seq)
		}
		lane.credit = w.seq
	case 'd', 'r':
		x := q.to.exposed[w.addr]
		if x.epoch != q.to.epoch || !q.to.running {
			f.breach("rank %d writes to or reads from memory that rank %d exposed in call %d: that one is in call %d (running %v)",
				q.from.rank, q.to.rank, x.epoch, q.to.epoch, q.to.running)
		}
		n := len(w.data) - w.landed
		if n > 1 && f.rng.IntN(2) == 0 {
			n = 1 + f.rng.IntN(n)
		}
		if far, near := x.mem[w.off+w.landed:], w.data[w.landed:w.landed+n]; w.what == 'd' {
			copy(far, near)
		} else {
			copy(near, far)
		}
		if w.landed += n; w.landed < len(w.data) {
			return false
		}
		q.puts--
	}
	q.writes = q.writes[1:]
	return len(q.writes) == 0
}

// start gives a node its next call.
func (d *node) start(p *plan, in, out []byte, combine kernel.Func) {
	d.epoch++
	d.running = true
	for i := range d.mappable {
		d.mappable[i] = d.fabric.tuning.mapped && (d.fabric.whole[d.epoch%len(d.fabric.whole)] || d.fabric.rng.IntN(2) == 0)
	}
	d.operands = [operands][]byte{input: in, output: out, scratch: make([]byte, p.scratch)}
	for i := range d.operands[scratch] {
		d.operands[scratch][i] = 0xee
	}
	d.machine.bind(p, p.fingerprint, in, out, d.operands[scratch], combine)
}

// run steps nodes and lands writes in random order until no node runs. over is
// called when a node's call has ended; it may start the next.
func (f *fabric) run(over func(d *node)) error {
	quiet := 0
	for {
		running := 0
		for _, d := range f.nodes {
			if d.running {
				running++
			}
		}
		if running == 0 {
			break
		}
		for range 4 * len(f.nodes) {
			if len(f.busy) > 0 && f.rng.IntN(2) == 0 {
				i := f.rng.IntN(len(f.busy))
				quiet = 0
				if f.land(f.busy[i]) {
					last := len(f.busy) - 1
					f.busy[i] = f.busy[last]
					f.busy = f.busy[:last]
				}
				continue
			}
			d := f.nodes[f.rng.IntN(len(f.nodes))]
			if !d.running || d == f.lame && f.rng.IntN(16) != 0 {
				continue
			}
			steps := 1
			if f.rng.IntN(3) == 0 {
				steps = 1 << 30
			}
			for range steps {
				if f.spoil != nil {
					f.spoil(d.machine)
				}
				// Some runs may move a few bytes only, so that a step takes several.
				if d.machine.left = anyNumber; f.rng.IntN(8) == 0 {
					d.machine.left = 1 + f.rng.IntN(300)
				}
				o := d.machine.step()
				if o == paused {
					o = moved
				}
				if o == failed {
					return fmt.Errorf("rank %d failed: %+v", d.rank, d.machine.mistake)
				}
				if o == ended {
					d.running = false
					over(d)
				}
				if o != moved {
					break
				}
				quiet = 0
			}
			quiet++
		}
		if len(f.breaches) > 0 {
			return fmt.Errorf("%s", strings.Join(f.breaches, "\n"))
		}
		// Ports refuse one time in eight, so 100 rounds without any progress
		// are none to come.
		if len(f.busy) == 0 && quiet > 400*len(f.nodes) {
			return f.deadlock()
		}
	}
	for len(f.busy) > 0 {
		if f.land(f.busy[0]) {
			f.busy = f.busy[1:]
		}
	}
	if len(f.breaches) > 0 {
		return fmt.Errorf("%s", strings.Join(f.breaches, "\n"))
	}
	return nil
}

func (f *fabric) deadlock() error {
	var b strings.Builder
	b.WriteString("deadlock:")
	for _, d := range f.nodes {
		if d.running {
			m := d.machine
			fmt.Fprintf(&b, "\n  rank %d call %d (%+v) step %d of %d: %v", d.rank, d.epoch, m.plan.call, m.pc, len(m.plan.steps), m.plan.steps[m.pc])
		}
	}
	return fmt.Errorf("%s", b.String())
}
