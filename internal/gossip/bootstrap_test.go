package gossip

import (
	"container/heap"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/coll/sim"
	"github.com/gorun-mpi/gorun/internal/pack"
)

// A boot is the start of a job on many hosts, in virtual time: logins in turns and by a tree, the addresses, the connections of the
// tree of fences, circles, and the fences, which are the real ones (fences.go, tree.go) as host i has them. What moves is counted by
// the real sizes; what a step costs a CPU was measured (see steps).
//
//	gorun:  logins in turns ──▶ all addresses ──▶ Peers, one after the other
//	agent:  start, listen ─────────────────────▶ dials its parent, meets its circle ──▶ fence 0: names
//	        starts its ranks ──────────────────────────────────────▶ fence 1: greetings ──▶ fence 2: cards ──▶ ranks
//
// A message leaves by the branch's writer (TLS), the host's port out, the port in, the branch's reader, and the lock
// of the node. The CPUs of a host do not limit: 64 of them serve nine branches.
type boot struct {
	net   sim.Link
	hosts []*bootHost
	queue dueHeap
	seq   int
	t     *testing.T

	all    []byte // contributions are windows of it, each host's its own
	size   [3]int // of a host's contribution, by fence
	answer [3]int // that each rank gets
	result bootResult
}

type bootHost struct {
	f        *fences
	out, in  sim.Time // when its ports are free again
	lock     sim.Time
	writers  map[int]sim.Time // when the writer of a branch is free again, and before that up
	readers  map[int]sim.Time
	ready    sim.Time // its ranks have shown what they show first
	met      sim.Time // the first of a circle: when it is free for the next that meets it,
	came     int      // and how many have
	awaited  [3]*fence
	finished [3]bool
}

// bootResult is when the last host was through with each step, and what moved.
type bootResult struct {
	reached, joined, greeted, carded, up sim.Time
	wide                                 sim.Time // reached with eight times as many logins at a time
	messages, bytes                      int      // of fences, all hosts
	root                                 int      // bytes that host 0 has sent of them
	answer                               int      // to each rank
}

// steps are what steps cost a CPU of the machine of docs/benchmarks.md; docs/scale.md says what measured them.
var steps = struct {
	login, agent, frame, handshake, exchange, start, rank sim.Time
	part, branch, card, socket, parse                     sim.Time // for each
}{
	login:     300 * sim.Millisecond,
	agent:     6 * sim.Millisecond,
	frame:     8 * sim.Microsecond,
	handshake: 900 * sim.Microsecond,
	exchange:  2 * sim.Millisecond,
	start:     300 * sim.Microsecond,
	rank:      3 * sim.Millisecond,
	part:      100 * sim.Nanosecond,
	branch:    sim.Nanosecond,
	card:      1500 * sim.Nanosecond,
	socket:    sim.Nanosecond / 5,
	parse:     500 * sim.Nanosecond,
}

const (
	bootRanks    = 64
	turns        = 32   // remote shells on their way at a time
	loginTree    = 65   // from so many other hosts on, logins go by a tree (launcher.Agents.Tree)
	greetingSize = 56   // what a rank tells all first where there are several hosts, and its card then: strace
	cardSize     = 227  //
	cardKept     = 256  // that a rank keeps of one beside its bytes: BenchmarkParseCards
	nameSize     = 8    // of a host
	setupSize    = 5129 // BenchmarkFrames, both
	peersSize    = 912
)

// reached is when all agents have said where they listen, with so many logins at a time. Where the logins go by a tree, each relay takes
// as long as an agent, and makes those of its block in turns; its own host's agent is there at once. What it passes on takes another way.
func (b *boot) reached(turns int) (last sim.Time) {
	way := 2 * (b.net.Latency + 2*b.net.Overhead)
	there := make([]sim.Time, len(b.hosts)) // when an agent has greeted; its place is free then, and Setup follows
	login := func(i int, places []sim.Time, turn int) {
		p := &places[turn%len(places)] // all take as long
		*p += steps.login + steps.agent
		there[i] = *p
	}
	others := len(b.hosts) - 1
	if others < loginTree {
		places := make([]sim.Time, turns)
		for i := range others {
			login(1+i, places, i)
		}
	} else {
		relays := min(int(math.Ceil(math.Sqrt(float64(others)))), turns)
		block := (others + relays - 1) / relays
		for first := 1; first <= others; first += block {
			login(first, []sim.Time{0}, 0)
			places := slices.Repeat(there[first:first+1], turns)
			there[first] += steps.agent
			for i := first + 1; i <= min(first+block-1, others); i++ {
				login(i, places, i-first-1)
				there[i] += way
			}
		}
		way *= 2
	}
	slices.Sort(there)
	port := sim.Time(0)
	for _, at := range there {
		port = max(port, at) + setupSize*b.net.PerByte
		last = max(last, port+steps.agent+way)
	}
	return last
}

// Above 64 hosts all logins take two turns, as many as there are relays behind each of as many.
func TestLoginsByATree(t *testing.T) {
	one := steps.login + steps.agent
	for _, c := range []struct{ hosts, turns, least int }{
		{1, 32, 0}, {2, 32, 1}, {33, 32, 1}, {34, 32, 2}, {65, 32, 2}, {66, 32, 2}, {1024, 32, 2}, {1026, 32, 2}, {1058, 32, 3}, {10_000, 32, 11}, {10_000, 256, 2},
	} {
		b := &boot{net: sim.Slingshot().Network, hosts: make([]*bootHost, c.hosts)}
		if got := b.reached(c.turns); got < sim.Time(c.least)*one || got >= sim.Time(c.least)*one+one/2 {
			t.Errorf("%d hosts, %d at a time: all are there after %v, want some more than %d logins", c.hosts, c.turns, got.Duration(), c.least)
		}
	}
}

type due struct {
	at  sim.Time
	seq int
	do  func()
}

type dueHeap []due

func (q dueHeap) Len() int { return len(q) }
func (q dueHeap) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q dueHeap) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *dueHeap) Push(x any)   { *q = append(*q, x.(due)) }
func (q *dueHeap) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = due{}
	*q = (*q)[:len(*q)-1]
	return last
}

// after has something happen at a time.
func (b *boot) after(at sim.Time, do func()) {
	b.seq++
	heap.Push(&b.queue, due{at, b.seq, do})
}

// contribution is the size of what a host adds to a fence of cards, as pmi's engine packs it.
func contribution(hosts, card int) int {
	w := pack.NewWriter(0)
	w.Array(4)
	w.Uint(2)
	w.Array(0)
	w.Array(2 * bootRanks)
	for i := range bootRanks {
		w.Uint(uint64(hosts*bootRanks - 1 - i))
		w.Bin(make([]byte, card))
	}
	w.String("")
	return len(w.Bytes())
}

// bootstrap starts a job on so many hosts.
func bootstrap(t *testing.T, hosts int, net sim.Link) bootResult {
	b := &boot{net: net, t: t}
	for fence, card := range [...]int{0, greetingSize, cardSize} {
		if b.size[fence] = nameSize; fence > 0 {
			b.size[fence] = contribution(hosts, card)
			w := pack.NewWriter(0)
			w.Bin(make([]byte, card))
			b.answer[fence] = len("cmd=gorun_allgather_result rc=0 size=\n") + 5 + hosts*bootRanks*len(w.Bytes())
		}
	}
	b.all = make([]byte, hosts+b.size[2])
	for i := range b.all {
		b.all[i] = byte(i*i>>8 ^ i)
	}
	for i := range hosts {
		b.hosts = append(b.hosts, &bootHost{f: newFences(i, hosts, 8), writers: map[int]sim.Time{}, readers: map[int]sim.Time{}})
	}
	b.logins()
	for b.queue.Len() > 0 {
		next := heap.Pop(&b.queue).(due)
		next.do()
	}
	for i, h := range b.hosts {
		if h.finished != [3]bool{true, true, true} {
			t.Fatalf("host %d of %d: fences that ended: %v", i, hosts, h.finished)
		}
	}
	b.result.answer = b.answer[2]
	return b.result
}

// logins starts the agents, and tells them the addresses when all are there.
func (b *boot) logins() {
	l := &b.net
	there := b.reached(turns)
	b.result.reached, b.result.wide = there, b.reached(8*turns)
	for i := range b.hosts {
		there += max(steps.frame, peersSize*l.PerByte)
		told := there + l.Latency + 2*l.Overhead
		b.after(told, func() { b.told(i, told) })
	}
}

// told is an agent that knows its addresses. It starts its ranks, dials its parent, and meets its circle.
func (b *boot) told(i int, now sim.Time) {
	h := b.hosts[i]
	h.ready = now + bootRanks*steps.start + steps.rank
	dialed := now + 4*(b.net.Latency+2*b.net.Overhead) // TCP and TLS: two round trips
	if i > 0 {
		up := dialed + steps.handshake
		parent := h.f.parent()
		h.writers[parent], b.hosts[parent].writers[i] = up, up
	}
	b.meet(i, dialed, func(at sim.Time, last bool) {
		first, _ := b.circle(i)
		if i != first {
			b.enter(i, 0, at)
		}
		if last { // the first has gathered all
			b.enter(first, 0, at)
		}
	})
}

func (b *boot) circle(i int) (first, end int) {
	n := &Node{cfg: Config{Index: i, Hosts: len(b.hosts), circle: circleMost}}
	return n.members()
}

// meet is one exchange with the first of the circle, which makes one after the other; last: it was the last one of all.
func (b *boot) meet(i int, now sim.Time, then func(at sim.Time, last bool)) {
	first, end := b.circle(i)
	h := b.hosts[first]
	if i != first {
		h.met = max(h.met, now) + steps.exchange
		now = h.met
	}
	h.came++
	last := h.came == end-first
	b.after(now, func() { then(now, last) })
}

// enter contributes to a fence.
func (b *boot) enter(i, epoch int, now sim.Time) {
	h := b.hosts[i]
	v, ok := h.f.contribute(uint64(epoch), b.all[i:i+b.size[epoch]])
	if !ok {
		b.t.Fatalf("host %d, fence %d: refused", i, epoch)
	}
	h.awaited[epoch] = v
	b.work(i, now, 1)
	b.probe(i, epoch, now, sim.Time(probeFirst.Nanoseconds())*sim.Nanosecond)
}

// probe asks as Node.await does.
func (b *boot) probe(i, epoch int, now, pause sim.Time) {
	b.after(now+pause, func() {
		h := b.hosts[i]
		if h.finished[epoch] {
			return
		}
		h.f.probe(h.awaited[epoch])
		b.work(i, now+pause, 0)
		b.probe(i, epoch, now+pause, min(2*pause, sim.Time(probeMost.Nanoseconds())*sim.Nanosecond))
	})
}

// work is what follows from a message or a call: parts were taken, messages leave, fences end.
func (b *boot) work(i int, now sim.Time, parts int) {
	h := b.hosts[i]
	h.lock = max(h.lock, now) + sim.Time(parts)*steps.part
	for _, o := range h.f.take() {
		h.lock += sim.Time(len(o.m.parts)) * steps.part
		b.send(i, o, h.lock)
	}
	for epoch, v := range h.awaited {
		if v == nil || !v.complete() || h.finished[epoch] {
			continue
		}
		for host, data := range v.all {
			if len(data) != b.size[epoch] || &data[0] != &b.all[host] {
				b.t.Fatalf("host %d, fence %d: another contribution of host %d", i, epoch, host)
			}
		}
		h.finished[epoch] = true
		h.f.release(v)
		h.awaited[epoch] = nil
		b.through(i, epoch, h.lock)
	}
}

// send is a message's way.
func (b *boot) send(i int, o outgoing, now sim.Time) {
	h, to, l := b.hosts[i], b.hosts[o.to], &b.net
	size := 4 + o.m.size()
	b.result.messages++
	b.result.bytes += size
	if i == 0 {
		b.result.root += size
	}
	written := max(h.writers[o.to], now) + l.Overhead + sim.Time(size)*steps.branch
	h.writers[o.to] = written
	b.after(written, func() {
		h.f.sent(o)
		start := max(h.out, written)
		h.out = start + max(sim.Time(size)*l.PerByte, l.Gap)
		b.after(start+l.Latency, func() {
			arrived := max(to.in, start+l.Latency)
			to.in = arrived + max(sim.Time(size)*l.PerByte, l.Gap)
			read := max(to.readers[i], to.in) + l.Overhead + sim.Time(size)*steps.branch
			to.readers[i] = read
			b.after(read, func() {
				to.f.receive(o.m)
				b.work(o.to, read, len(o.m.parts))
			})
		})
	})
}

// through is the end of a fence at a host. The host's loop answers one rank after the other, and each reads its cards.
func (b *boot) through(i, epoch int, now sim.Time) {
	h, r := b.hosts[i], &b.result
	ranks := sim.Time(len(b.hosts) * bootRanks)
	answered := now + ranks*steps.card + sim.Time(bootRanks*b.answer[epoch])*steps.socket
	switch epoch {
	case 0:
		b.meet(i, now, func(at sim.Time, _ bool) {
			r.joined = max(r.joined, at)
			at = max(at, h.ready)
			b.enter(i, 1, at)
		})
	case 1:
		r.greeted = max(r.greeted, answered)
		b.after(answered, func() { b.enter(i, 2, answered) })
	case 2:
		r.carded, r.up = max(r.carded, now), max(r.up, answered+ranks*steps.parse)
	}
}

// BenchmarkUnion is a host of 1,000 that takes a fence's parts from its parent and passes them on to 8 children.
func BenchmarkUnion(b *testing.B) {
	const hosts = 1000
	parts := make([]part, 0, hosts)
	for i := range hosts {
		if i != 1 {
			parts = append(parts, part{i, 0, 1, []byte{1}})
		}
	}
	taken, began := 0, cpuTime()
	for b.Loop() {
		f := newFences(1, hosts, 8)
		f.contribute(0, nil)
		f.receive(message{kind: kindDown, from: 0, parts: parts})
		taken = len(parts)
		for _, o := range f.take() {
			taken += len(o.m.parts)
		}
	}
	b.ReportMetric(float64(cpuTime()-began)/float64(b.N*taken), "cpu-ns/part")
}

// cpuTime is what this process has taken of the CPUs, in nanoseconds: other programs run beside.
func cpuTime() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkBranch is a large contribution that passes one connection of the tree, both ways.
func BenchmarkBranch(b *testing.B) {
	const size = 32 << 20
	var nodes []*Node
	for i := range 2 {
		n, err := Listen(Config{Host: hostName(i), Index: i, Hosts: 2, Key: testKey})
		if err != nil {
			b.Fatal(err)
		}
		defer n.Close()
		nodes = append(nodes, n)
	}
	addrs := addrsOf(nodes)
	for _, err := range each(nodes, func(_ int, n *Node) error { return n.Join(b.Context(), addrs) }) {
		if err != nil {
			b.Fatal(err)
		}
	}
	data := make([]byte, size)
	epoch, began := uint64(0), cpuTime()
	for b.Loop() {
		epoch++
		for _, err := range each(nodes, func(_ int, n *Node) error { _, err := n.Fence(b.Context(), epoch, data); return err }) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(cpuTime()-began)/float64(b.N*2*size*2), "cpu-ns/B") // two ways, and each has two ends
}
