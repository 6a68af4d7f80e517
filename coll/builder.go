package coll

import "fmt"

// A builder collects the steps of a plan. Its methods add steps; an algorithm is a function
// that calls them. It can be used again: what it needs besides the steps it keeps.
type builder struct {
	call      Call
	tuning    tuning
	sends     []Part // of the call
	recvs     []Part
	steps     []step
	mark      uint32  // of the channels' steps
	length    int     // that it stands for
	tmp       int     // bytes of scratch given out
	puts      []bool  // peers put to, or got from, since their last flush
	unflushed []int32 // the peers of puts, and some that were flushed
	remote    [operands]bool
	shows     bool // the operands, see show
	marks     bool // messages with their lengths, see sized

	landing  []loc // of each peer's pieces, see pipeline
	count    []int32
	outgoing schedule
	incoming schedule
}

// compile makes the plan of a call whose algorithm has been selected.
func compile(c Call, t tuning) *plan {
	var b builder
	p := new(plan)
	b.compile(p, &c, nil, nil, t)
	return p
}

// compile makes the plan of a call whose algorithm has been selected, in p, the
// memory of whose steps it uses again.
func (b *builder) compile(p *plan, c *Call, sends, recvs []Part, t tuning) {
	b.call, b.tuning, b.sends, b.recvs = *c, t, sends, recvs
	b.steps, b.mark, b.length, b.tmp, b.remote, b.shows = p.steps[:0], 0, 0, 0, [operands]bool{}, false
	b.marks = sized(c.Kind)
	if len(b.puts) != c.Size {
		b.puts, b.count, b.landing = make([]bool, c.Size), make([]int32, c.Size), make([]loc, c.Size)
	}
	w := wayOf(c.Kind, c.Algorithm)
	if w == nil {
		panic(fmt.Sprintf("coll: no plan of %v by %v", c.Kind, c.Algorithm))
	}
	w.build(b)
	b.finish(p)
}

// source is where the caller's own data is.
func (b *builder) source() loc {
	if b.call.InPlace {
		return loc{operand: output}
	}
	return loc{operand: input}
}

// dest is where the result goes.
func (b *builder) dest() loc { return loc{operand: output} }

// alloc gives out n bytes of scratch, aligned like a cache line.
func (b *builder) alloc(n int) loc {
	l := loc{operand: scratch, off: b.tmp}
	b.tmp += (n + 63) &^ 63
	return l
}

// at is the payload of the message awaited from peer.
func at(peer int) loc { return loc{operand: slot, peer: int32(peer)} }

func (b *builder) add(s step) {
	if s.verb < vRelease {
		s.mark = b.mark
		if s.verb >= vAwait {
			s.n = b.length // for a report
		}
	}
	b.steps = append(b.steps, s)
}

// sized has the messages that follow tell and expect the length n, where the
// call's kind has them do so.
func (b *builder) sized(n int) {
	if b.marks {
		b.mark, b.length = lengthMark(uint64(n)), n
	}
}

func (b *builder) send(peer int, a loc, n int) {
	b.add(step{verb: vSend, peer: int32(peer), a: a, n: n})
}

func (b *builder) signal(peer int) { b.add(step{verb: vSend, peer: int32(peer)}) }

func (b *builder) expose(peer, index int, dst loc, n int) {
	b.remote[dst.operand] = true
	b.add(step{verb: vExpose, peer: int32(peer), index: uint8(index), dst: dst, n: n})
}

// exposeOperands exposes the n bytes of the input as #0 and those of the output as #1,
// as far as there are any, in one message if it holds them; learnOperands learns
// what a peer exposes so.
func (b *builder) exposeOperands(peer int, in, out bool, n int) {
	if pair := in && out && b.tuning.eager >= pairLen; pair {
		b.expose(peer, 0, b.source(), n)
		b.remote[output] = true
		s := &b.steps[len(b.steps)-1]
		s.pair, s.a = true, b.dest()
		return
	}
	if in {
		b.expose(peer, 0, b.source(), n)
	}
	if out {
		b.expose(peer, 1, b.dest(), n)
	}
}

func (b *builder) learnOperands(peer int, in, out bool) {
	if in {
		b.learn(peer, 0)
	}
	if pair := in && out && b.tuning.eager >= pairLen; pair {
		b.steps[len(b.steps)-1].pair = true
	} else if out {
		b.learn(peer, 1)
	}
}

func (b *builder) learn(peer, index int) {
	b.add(step{verb: vLearn, peer: int32(peer), index: uint8(index)})
}

// put writes n bytes to off in peer's exposed memory and sends a signal.
func (b *builder) put(peer, index, off int, a loc, n int) {
	b.remote[a.operand] = true
	b.written(peer)
	b.add(step{verb: vPut, peer: int32(peer), index: uint8(index), dst: loc{off: off}, a: a, n: n, signal: true})
}

// write is put without a signal.
func (b *builder) write(peer, index, off int, a loc, n int) {
	b.put(peer, index, off, a, n)
	b.steps[len(b.steps)-1].signal = false
}

// pull reads n bytes at off in peer's exposed memory to dst, where they are once
// the peer is flushed. Long ones are several reads, see longestReduce.
func (b *builder) pull(peer, off int, dst loc, n int) {
	b.remote[dst.operand] = true
	b.written(peer)
	longest := max(longestReduce, pieces(n, mostPieces))
	for done := 0; done < n; done += longest {
		b.add(step{verb: vGet, peer: int32(peer), dst: dst.plus(done), a: loc{off: off + done}, n: min(longest, n-done)})
	}
}

// written notes a put to peer, whose source must be flushed, or a get.
func (b *builder) written(peer int) {
	if !b.puts[peer] {
		b.puts[peer] = true
		b.unflushed = append(b.unflushed, int32(peer))
	}
}

func (b *builder) await(peer int)   { b.add(step{verb: vAwait, peer: int32(peer)}) }
func (b *builder) take(peer int)    { b.add(step{verb: vTake, peer: int32(peer)}) }
func (b *builder) release(peer int) { b.add(step{verb: vRelease, peer: int32(peer)}) }

func (b *builder) flush(peer int) {
	if b.puts[peer] {
		b.puts[peer] = false
		b.add(step{verb: vFlush, peer: int32(peer)})
	}
}

// copy moves n bytes unless they are there already. A slot that it reads is
// given back with its last use, by the caller's word.
func (b *builder) copy(dst, a loc, n int, release bool) {
	if n == 0 || dst == a {
		if release {
			b.release(int(a.peer))
		}
		return
	}
	b.add(step{verb: vCopy, dst: dst, a: a, n: n, release: release})
}

// aside has what the steps from this one on move pass by the caches where the results of all
// ranks, of so many bytes, would not stay there: they would drive out what is sent.
func (b *builder) aside(from, results int) {
	if b.tuning.cached == 0 || results < b.tuning.cached {
		return
	}
	for i := range b.steps[from:] {
		s := &b.steps[from+i]
		s.aside = s.n >= asideLeast && (s.verb == vCopy || s.verb == vPut || s.verb == vGet)
	}
}

// asideLeast is what is worth waiting for the last of such stores.
const asideLeast = 64 << 10

// reduce combines n bytes, so many at a time that a stop of the world, which cannot
// interrupt an operation's assembly, need not wait for long.
func (b *builder) reduce(dst, x, y loc, n int, release bool) {
	longest := max(longestReduce/b.call.Elem, 1) * b.call.Elem
	for ; n > longest; n -= longest {
		b.add(step{verb: vReduce, dst: dst, a: x, b: y, n: longest})
		dst, x, y = dst.plus(longest), x.plus(longest), y.plus(longest)
	}
	b.add(step{verb: vReduce, dst: dst, a: x, b: y, n: n, release: release})
}

// longestReduce is some 100 us of work.
const longestReduce = 1 << 20

// eager tells whether n bytes travel in a slot. Both ends of a transfer ask
// it about the same n.
func (b *builder) eager(n int) bool { return n <= b.tuning.eager }

// A transfer of n bytes is three parts, of which the receiver has two: open,
// and then receive; the sender has give. n is the same in all, and not 0.
//
//	            eager                rendezvous
//	open        -                    expose
//	give        send                 learn, put with signal
//	receive     await                take

// open lets peer's next give arrive at dst.
func (b *builder) open(peer int, dst loc, n int) {
	if !b.eager(n) {
		b.expose(peer, 0, dst, n)
	}
}

// give sends n bytes to a peer that has opened.
func (b *builder) give(peer int, a loc, n int) {
	if b.eager(n) {
		b.send(peer, a, n)
		return
	}
	b.learn(peer, 0)
	b.put(peer, 0, 0, a, n)
}

// receive waits for n bytes from peer, opened at dst, and says where they are.
// In a slot (held is true) they stay until it is released.
func (b *builder) receive(peer int, dst loc, n int) (where loc, held bool) {
	if b.eager(n) {
		b.await(peer)
		return at(peer), true
	}
	b.take(peer)
	return dst, false
}

// get waits for n bytes from peer, opened at dst, and has them there.
func (b *builder) get(peer int, dst loc, n int) {
	where, held := b.receive(peer, dst, n)
	b.copy(dst, where, n, held)
}

// flushAll has all memory that was put from free again, and all there that was got.
func (b *builder) flushAll() {
	for _, peer := range b.unflushed {
		b.flush(int(peer))
	}
	b.unflushed = b.unflushed[:0]
}

// finish closes the plan: all buffers are free when it is done.
func (b *builder) finish(p *plan) {
	b.flushAll()
	fingerprint := b.call.summary(0).fingerprint()
	if b.shows {
		fingerprint ^= shown
	}
	*p = plan{call: b.call, steps: b.steps, scratch: b.tmp, fingerprint: fingerprint, remote: b.remote}
	b.steps, b.sends, b.recvs = nil, nil, nil
}

// A portion is a part of a vector: n bytes at off.
type portion struct{ off, n int }

// portionOf is a rank's of as many portions of the call's vector as there are ranks.
func portionOf(c *Call, rank int) portion { return c.portion(rank, c.Size) }

// portion is number i of so many of the call's vector, whole elements each, the first ones
// longer by an element where it does not divide.
func (c *Call) portion(i, of int) portion {
	count := c.Bytes / c.Elem
	q, r := count/of, count%of
	s := portion{off: (i*q + min(i, r)) * c.Elem, n: q * c.Elem}
	if i < r {
		s.n += c.Elem
	}
	return s
}

// mostPieces bounds the steps of a plan, which has some for each piece of a vector:
// those of vectors of more than 1 GiB are longer than the tuning says.
const mostPieces = 1 << 16

// pieceSize is the tuning's piece in whole elements.
func (b *builder) pieceSize() int {
	return max(b.tuning.piece/b.call.Elem, pieces(b.call.Bytes/b.call.Elem, mostPieces), 1) * b.call.Elem
}

// pulledSize is the piece that is got at a time: several of the tuning's, for a call
// of the kernel costs 0.7 us, as much as moving 12 KiB, and what fits in the second
// cache is hot enough for what was moved by it. Large teams keep their scratch small.
func (b *builder) pulledSize() int {
	if b.call.Size >= crowd {
		return b.pieceSize()
	}
	return 4 * b.pieceSize()
}

// chunkSize is the tuning's chunk.
func (b *builder) chunkSize() int { return max(b.tuning.chunk, pieces(b.call.Bytes, mostPieces)) }

// pieces is how many pieces of at most size bytes n bytes are.
func pieces(n, size int) int { return (n + size - 1) / size }

// part is piece k of n bytes.
func part(n, size, k int) portion {
	off := k * size
	return portion{off: off, n: min(size, n-off)}
}
