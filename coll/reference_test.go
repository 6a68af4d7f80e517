package coll

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// A job is one collective call of all members, with their data.
type job struct {
	call    Call // Rank is not set
	inPlace []bool
	typ     kernel.Type
	r       kernel.Reduction
	given   [][]byte // what each member contributes
	sends   [][]Part // of each member
	recvs   [][]Part
	room    []int // bytes of each member's receive buffer, of an Exchange and a Fold
}

// elements are the element types of the tests' reductions, exact whatever the
// order.
var elements = []kernel.Type{kernel.Uint8, kernel.Int32, kernel.Uint64}

// product is the product of matrices of two rows of two bytes: the order matters.
var product = kernel.Reduction{Elem: 4, Ordered: true, ID: kernel.UserID + 1, Name: "matrix product", Func: func(dst, a, b []byte) {
	for i := 0; i < len(dst); i += 4 {
		m := matrix(a[i:], b[i:])
		copy(dst[i:], m[:])
	}
}}

func matrix(a, b []byte) [4]byte {
	return [4]byte{a[0]*b[0] + a[1]*b[2], a[0]*b[1] + a[1]*b[3], a[2]*b[0] + a[3]*b[2], a[2]*b[1] + a[3]*b[3]}
}

// contribution is the length of what member r gives.
func (j *job) contribution(r int) int {
	switch j.call.Kind {
	case AllToAll, ReduceScatter:
		return j.call.Size * j.call.Bytes
	case Scatter:
		if r == j.call.Root {
			return j.call.Size * j.call.Bytes
		}
		return 0
	case Exchange, Fold:
		return reach(j.sends[r])
	case ReduceScatterV:
		return reach(j.recvs[r])
	}
	return j.call.Bytes
}

// reach is where the last of parts ends.
func reach(parts []Part) (n int) {
	for _, p := range parts {
		n = max(n, p.Off+p.N)
	}
	return n
}

// newJob makes a job with random data; bytes is rounded down to whole elements,
// and about that of each part.
func newJob(rng *rand.Rand, kind Kind, algorithm Algorithm, n, bytes int) *job {
	j := &job{call: Call{Kind: kind, Algorithm: algorithm, Size: n, Elem: 1}, inPlace: make([]bool, n),
		sends: make([][]Part, n), recvs: make([][]Part, n), room: make([]int, n)}
	if operations[kind].rooted {
		j.call.Root = rng.IntN(n)
	}
	if operations[kind].reduces {
		j.typ = elements[rng.IntN(len(elements))]
		j.r, _ = kernel.For(j.typ, []kernel.Op{kernel.Sum, kernel.Max, kernel.Prod}[rng.IntN(3)])
		if rng.IntN(3) == 0 {
			j.r, j.call.Ordered = product, true
		}
		j.call.Elem = j.r.Elem
	}
	j.call.Bytes = bytes / j.call.Elem * j.call.Elem
	switch kind {
	case Barrier:
		j.call.Bytes = 0
	case Exchange:
		j.call.Bytes = 0
		j.drawExchange(rng, bytes)
	case Fold:
		j.call.Bytes = 0
		j.drawFold(rng, bytes)
	case ReduceScatterV:
		j.drawBlocks(rng, bytes)
	}
	for r := range n {
		switch kind {
		case Barrier, Bcast, Exchange, Fold:
		case Reduce, Gather, Scatter:
			j.inPlace[r] = r == j.call.Root && rng.IntN(3) == 0
		default:
			j.inPlace[r] = rng.IntN(3) == 0
		}
		data := make([]byte, j.contribution(r))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		j.given = append(j.given, data)
	}
	return j
}

// ragged is a length in whole elements: none, about that many bytes, or anything
// up to it.
func (j *job) ragged(rng *rand.Rand, bytes int) int {
	n := []int{0, bytes, rng.IntN(bytes + 1), rng.IntN(bytes + 1)}[rng.IntN(4)]
	return n / j.call.Elem * j.call.Elem
}

// scatter gives parts their places in a buffer, in a random order that keeps that of
// the parts of each peer, with gaps; sometimes an empty part more.
func scatter(rng *rand.Rand, byPeer [][]int, elem int) (parts []Part, room int) {
	left := make([][]int, len(byPeer))
	var peers []int
	for peer, lengths := range byPeer {
		left[peer] = lengths
		for range lengths {
			peers = append(peers, peer)
		}
	}
	rng.Shuffle(len(peers), func(i, k int) { peers[i], peers[k] = peers[k], peers[i] })
	for _, peer := range peers {
		n := left[peer][0]
		left[peer] = left[peer][1:]
		if n == 0 && rng.IntN(2) == 0 {
			continue // each side says so or not
		}
		room += rng.IntN(3) * elem
		parts = append(parts, Part{Peer: peer, Off: room, N: n})
		room += n
	}
	return parts, room + rng.IntN(2)
}

func (j *job) drawExchange(rng *rand.Rand, bytes int) {
	n := j.call.Size
	out, in := make([][][]int, n), make([][][]int, n)
	for r := range n {
		out[r], in[r] = make([][]int, n), make([][]int, n)
	}
	most := 1 + rng.IntN(3)
	for from := range n {
		for to := range n {
			for range rng.IntN(most + 1) {
				length := j.ragged(rng, bytes)
				out[from][to] = append(out[from][to], length)
				in[to][from] = append(in[to][from], length)
			}
		}
	}
	for r := range n {
		j.sends[r], _ = scatter(rng, out[r], 1)
		j.recvs[r], j.room[r] = scatter(rng, in[r], 1)
	}
}

func (j *job) drawFold(rng *rand.Rand, bytes int) {
	n := j.call.Size
	out := make([][][]int, n)
	for r := range n {
		out[r] = make([][]int, n)
	}
	for to := range n {
		if rng.IntN(2) == 0 {
			continue
		}
		length := j.ragged(rng, bytes)
		for _, from := range rng.Perm(n)[:1+rng.IntN(n)] {
			out[from][to] = []int{length}
			j.recvs[to] = append(j.recvs[to], Part{Peer: from, N: length})
		}
		j.room[to] = length
	}
	for r := range n {
		j.sends[r], _ = scatter(rng, out[r], j.call.Elem)
	}
	for to := range n {
		// A sender may have left out a part of nothing; to itself it must not.
		for _, p := range j.recvs[to] {
			if p.Peer == to && p.N == 0 {
				j.recvs[to] = nil
				break
			}
		}
	}
	for r := range n {
		var kept []Part
		for _, p := range j.sends[r] {
			if p.N > 0 {
				kept = append(kept, p)
			}
		}
		j.sends[r] = kept
	}
}

func (j *job) drawBlocks(rng *rand.Rand, bytes int) {
	var blocks []Part
	at := 0
	j.call.Bytes = 0
	for r := range j.call.Size {
		at += rng.IntN(8) / 6 * j.call.Elem
		p := Part{Peer: r, Off: at, N: j.ragged(rng, bytes)}
		blocks = append(blocks, p)
		at += p.N
		j.call.Bytes += p.N
	}
	for r := range j.recvs {
		j.recvs[r] = blocks
	}
}

// plan is member r's.
func (j *job) plan(r int, t tuning) *plan {
	c := j.call
	c.Rank, c.InPlace = r, j.inPlace[r]
	var b builder
	p := new(plan)
	b.compile(p, &c, j.sends[r], j.recvs[r], t)
	return p
}

// args are member r's, with its buffers.
func (j *job) args(r int, in, out Buffer) *Args {
	c := &j.call
	return &Args{Kind: c.Kind, Algorithm: c.Algorithm, Send: in, Recv: out, Root: c.Root, Bytes: c.Bytes, Reduction: j.r, Sends: j.sends[r], Recvs: j.recvs[r]}
}

// operands are member r's buffers for the call, nil for one that it has not.
func (j *job) operands(r int) (in, out []byte) {
	c := &j.call
	in = append([]byte{}, j.given[r]...)
	switch c.Kind {
	case Barrier:
		return nil, nil
	case Bcast:
		if r == c.Root {
			return nil, in
		}
		return nil, junk(c.Bytes)
	case Reduce:
		if r != c.Root {
			return in, nil
		}
		out = junk(c.Bytes)
	case Gather:
		if r != c.Root {
			return in, nil
		}
		out = junk(c.Size * c.Bytes)
	case Scatter:
		if r != c.Root {
			return nil, junk(c.Bytes)
		}
		if j.inPlace[r] {
			return in, nil
		}
		return in, junk(c.Bytes)
	case AllReduce, ReduceScatter, Scan, ExScan:
		out = junk(c.Bytes)
	case ReduceScatterV:
		out = junk(j.recvs[r][r].N)
	case AllGather, AllToAll:
		out = junk(c.Size * c.Bytes)
	case Exchange, Fold:
		out = junk(j.room[r])
	}
	if j.inPlace[r] {
		if c.Kind == AllGather || c.Kind == Gather {
			copy(out[r*c.Bytes:], in)
			return nil, out
		}
		return nil, in
	}
	return in, out
}

func junk(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

// want is what member r must find in the first bytes of its output.
func (j *job) want(r int) []byte {
	c := &j.call
	var out []byte
	switch c.Kind {
	case Bcast:
		return j.given[c.Root]
	case Reduce:
		if r == c.Root {
			return j.fold(j.given, 0, c.Bytes)
		}
	case AllReduce:
		return j.fold(j.given, 0, c.Bytes)
	case Scan:
		return j.fold(j.given[:r+1], 0, c.Bytes)
	case ExScan:
		if r > 0 {
			return j.fold(j.given[:r], 0, c.Bytes)
		}
		if j.inPlace[0] {
			return j.given[0] // untouched
		}
		return junk(c.Bytes)
	case ReduceScatter:
		return j.fold(j.given, r*c.Bytes, c.Bytes)
	case ReduceScatterV:
		return j.fold(j.given, j.recvs[r][r].Off, j.recvs[r][r].N)
	case AllGather:
		return bytes.Join(j.given, nil)
	case Gather:
		if r == c.Root {
			return bytes.Join(j.given, nil)
		}
	case Scatter:
		if !j.inPlace[r] {
			return j.given[c.Root][r*c.Bytes : (r+1)*c.Bytes]
		}
	case AllToAll:
		for _, g := range j.given {
			out = append(out, g[r*c.Bytes:(r+1)*c.Bytes]...)
		}
	case Exchange:
		out = junk(j.room[r])
		for from, g := range j.given {
			for k, p := range between(j.recvs[r], from) {
				sent := between(j.sends[from], r)[k]
				copy(out[p.Off:p.Off+p.N], g[sent.Off:])
			}
		}
	case Fold:
		var vectors [][]byte
		for _, p := range j.recvs[r] {
			if p.N == 0 {
				return nil
			}
			sent := between(j.sends[p.Peer], r)[0]
			vectors = append(vectors, j.given[p.Peer][sent.Off:])
		}
		if vectors == nil {
			return junk(j.room[r])
		}
		return j.fold(vectors, 0, j.room[r])
	}
	return out
}

// between are the parts with a peer that are not empty.
func between(parts []Part, peer int) (list []Part) {
	for _, p := range parts {
		if p.Peer == peer && p.N > 0 {
			list = append(list, p)
		}
	}
	return list
}

// fold combines n bytes at off of vectors in their order, the slow and obvious way.
func (j *job) fold(vectors [][]byte, off, n int) []byte {
	out := append([]byte{}, vectors[0][off:off+n]...)
	op := kernel.Op(j.r.ID & 15)
	for _, g := range vectors[1:] {
		for i := 0; i < n; i += j.call.Elem {
			a, b := out[i:], g[off+i:]
			if j.call.Ordered {
				m := matrix(a, b)
				copy(a, m[:])
				continue
			}
			switch j.typ {
			case kernel.Uint8:
				a[0] = byte(apply(op, uint64(a[0]), uint64(b[0])))
			case kernel.Int32:
				x, y := int32(binary.NativeEndian.Uint32(a)), int32(binary.NativeEndian.Uint32(b))
				binary.NativeEndian.PutUint32(a, uint32(apply(op, x, y)))
			case kernel.Uint64:
				binary.NativeEndian.PutUint64(a, apply(op, binary.NativeEndian.Uint64(a), binary.NativeEndian.Uint64(b)))
			}
		}
	}
	return out
}

func apply[T int32 | uint64](op kernel.Op, a, b T) T {
	switch op {
	case kernel.Sum:
		return a + b
	case kernel.Prod:
		return a * b
	case kernel.Min:
		return min(a, b)
	}
	return max(a, b)
}
