package gossip

import "slices"

// fences is the protocol of one host without I/O: calls and messages in,
// messages out. It is not safe for concurrent use.
type fences struct {
	index, hosts, fanout int

	next      uint64            // the lowest epoch that is not complete here
	childNext []uint64          // the same of each child, as far as it is known
	open      map[uint64]*fence // epochs not freed yet; those below next that are missing are freed
	failed    error             // why no fence completes any more

	out     []outgoing
	sending map[sendKey]int // entries given to out whose sending has not ended
}

// A sendKey is a transfer: entries of one epoch to one host.
type sendKey struct {
	to    int
	epoch uint64
}

// A fence is what this host has of one epoch.
type fence struct {
	epoch   uint64
	entries []entry  // by host
	have    int      // hosts of the job that are complete here
	below   int      // hosts of this subtree, this one included, that are not
	up      bool     // the subtree was sent up
	parts   int      // parts that are here
	probed  int      // parts that were when the caller asked last
	asked   []int    // by child: parts of its subtree that were when it asked last, plus 1
	taken   bool     // the caller has the result, or gave up
	all     [][]byte // when it is complete
	err     error    // when it has failed
}

type entry struct {
	parts [][]byte
	have  int
}

func (e *entry) complete() bool { return e.parts != nil && e.have == len(e.parts) }

type outgoing struct {
	to int
	m  message
}

func newFences(index, hosts, fanout int) *fences {
	f := &fences{index: index, hosts: hosts, fanout: fanout, open: make(map[uint64]*fence), sending: make(map[sendKey]int)}
	f.childNext = make([]uint64, len(f.children()))
	return f
}

// at is the fence of an epoch, made if it is new; nil when it was freed.
func (f *fences) at(epoch uint64) *fence {
	if v := f.open[epoch]; v != nil {
		return v
	}
	if epoch < f.next {
		return nil
	}
	v := &fence{epoch: epoch, entries: make([]entry, f.hosts), asked: make([]int, len(f.childNext))}
	for h := range f.hosts {
		if f.inSubtree(h, f.index) {
			v.below++
		}
	}
	if f.failed != nil {
		v.fail(f.failed)
	}
	f.open[epoch] = v
	return v
}

func (v *fence) complete() bool { return v.all != nil }

func (v *fence) ended() bool { return v.all != nil || v.err != nil }

func (v *fence) fail(err error) {
	if !v.ended() {
		v.err = err
	}
}

// contribute adds this host's own entry. ok is false when it has one already.
func (f *fences) contribute(epoch uint64, data []byte) (v *fence, ok bool) {
	v = f.at(epoch)
	if v == nil || v.entries[f.index].parts != nil {
		return nil, false
	}
	for _, p := range split(f.index, data) {
		f.add(v, p)
	}
	v.probed = v.parts
	f.advance(v)
	return v, true
}

// release says that the caller has the result of a fence, or gave up.
func (f *fences) release(v *fence) {
	v.taken = true
	f.free()
}

// receive takes a message. Its parts are kept.
func (f *fences) receive(m message) {
	child := slices.Index(f.children(), m.from)
	if child >= 0 && m.kind != kindSync {
		f.childNext[child] = max(f.childNext[child], m.next)
	}
	v := f.at(m.epoch)
	if v == nil {
		f.free()
		return
	}
	for _, p := range m.parts {
		// Only this host says what it contributes.
		if p.host != f.index {
			f.add(v, p)
		}
	}
	switch {
	case m.kind == kindProbe && child >= 0:
		f.probed(v, child, m.from)
	case m.kind == kindAgain && v.below == 0 && m.from == f.parent() && f.index > 0 && !f.busy(v, m.from):
		f.sendUp(v)
	}
	f.advance(v)
	f.free()
}

// probe is called from time to time while the caller waits. As long as parts
// arrive nothing is asked: a big fence takes its time, and repeating what is
// under way would make it take more.
func (f *fences) probe(v *fence) {
	if v.parts != v.probed {
		v.probed = v.parts
		return
	}
	if f.index > 0 && v.below == 0 && !v.complete() && v.err == nil && !f.busy(v, f.parent()) {
		f.send(f.parent(), message{kind: kindProbe, epoch: v.epoch})
	}
}

// reconnected is called when the connection to the parent is a new one: what the old one had may
// be lost, either way.
func (f *fences) reconnected() {
	for _, v := range f.open {
		if v.below == 0 && !v.complete() && v.err == nil && !f.busy(v, f.parent()) {
			f.sendUp(v)
			f.send(f.parent(), message{kind: kindProbe, epoch: v.epoch})
		}
	}
}

// probed answers a child that waits: with what it misses, or, when its subtree
// has not come any further since it asked last, with the wish for that.
func (f *fences) probed(v *fence, child, host int) {
	if v.complete() {
		if !f.busy(v, host) {
			f.sendDown(v, host)
		}
		return
	}
	parts, complete := 0, true
	for h := range v.entries {
		if f.inSubtree(h, host) {
			parts += v.entries[h].have
			complete = complete && v.entries[h].complete()
		}
	}
	if !complete && v.asked[child] == parts+1 {
		f.send(host, message{kind: kindAgain, epoch: v.epoch})
	}
	v.asked[child] = parts + 1
}

// busy tells whether entries are on their way to a host.
func (f *fences) busy(v *fence, to int) bool { return f.sending[sendKey{to, v.epoch}] > 0 }

// sent says that the sending of a message that was taken has ended, well or not.
func (f *fences) sent(o outgoing) {
	if len(o.m.parts) == 0 {
		return
	}
	key := sendKey{o.to, o.m.epoch}
	if f.sending[key]--; f.sending[key] <= 0 {
		delete(f.sending, key)
	}
}

// lose ends what is not complete.
func (f *fences) lose(err error) {
	if f.failed != nil {
		return
	}
	f.failed = err
	for _, v := range f.open {
		v.fail(err)
	}
}

// add notes a part; doubled ones, and ones that contradict, change nothing.
func (f *fences) add(v *fence, p part) {
	e := &v.entries[p.host]
	if e.parts == nil {
		e.parts = make([][]byte, p.of)
	}
	if len(e.parts) != p.of || e.parts[p.index] != nil {
		return
	}
	if p.data == nil {
		p.data = []byte{}
	}
	e.parts[p.index] = p.data
	v.parts++
	if e.have++; e.have < len(e.parts) {
		return
	}
	v.have++
	if f.inSubtree(p.host, f.index) {
		v.below--
	}
}

// missing are the hosts of this subtree whose contributions are not here.
func (f *fences) missing(v *fence) []int {
	var hosts []int
	for h := range v.entries {
		if f.inSubtree(h, f.index) && !v.entries[h].complete() {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// advance sends what became due.
func (f *fences) advance(v *fence) {
	if v.err != nil {
		return
	}
	if v.below == 0 && !v.up && f.index > 0 {
		v.up = true
		f.sendUp(v)
	}
	if v.have < f.hosts || v.complete() {
		return
	}
	v.all = make([][]byte, f.hosts)
	bytes := 0
	for h, e := range v.entries {
		if len(e.parts) == 1 {
			v.all[h] = e.parts[0]
		} else {
			v.all[h] = slices.Concat(e.parts...)
		}
		bytes += len(v.all[h])
	}
	for n := f.open[f.next]; n != nil && n.complete(); n = f.open[f.next] {
		f.next++
	}
	for _, c := range f.children() {
		f.sendDown(v, c)
	}
	// The parent learns it with the next fence, but should not keep much until
	// then.
	if f.index > 0 && bytes > ackAbove {
		f.send(f.parent(), message{kind: kindAck, epoch: v.epoch})
	}
}

// ackAbove is the size of a fence that is acknowledged at once.
const ackAbove = 256 << 10

// free forgets fences that nobody needs any more.
func (f *fences) free() {
	least := f.next
	for _, n := range f.childNext {
		least = min(least, n)
	}
	for epoch, v := range f.open {
		if epoch < least && v.taken {
			delete(f.open, epoch)
		}
	}
}
