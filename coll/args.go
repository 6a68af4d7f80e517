package coll

import (
	"math"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// Args are the arguments of one collective call. Everything but the buffers, the
// parts and what only one rank gives is the same in all members.
//
//	                Send               Recv               Bytes          in place
//	Barrier         -                  -                  -              -
//	Bcast           -                  vector             of the vector  -
//	Reduce          vector             vector at root     of the vector  root: Send nil
//	AllReduce       vector             vector             of the vector  Send nil
//	Scan, ExScan    vector             vector             of the vector  Send nil
//	AllGather       block              block of each      of a block     Send nil, own block at its place
//	Gather          block              root: of each      of a block     root: Send nil, own block at its place
//	Scatter         root: of each      block              of a block     root: Recv nil, own block stays where it is
//	AllToAll        block for each     block of each      of a block     Send nil
//	ReduceScatter   block for each     block              of a block     Send nil, Recv as Send, its first block replaced
//	ReduceScatterV  vector of Recvs    own block          -              Send nil, Recv the vector, its beginning replaced
//	Exchange        memory of Sends    memory of Recvs    -              -
//	Fold            memory of Sends    vector             -              -
//
// A Send that begins where the call in place would have its data means the same
// as nil. Buffers that overlap otherwise are ErrArgument; in an Exchange it is the
// parts, where what is received must be apart from all others. Rank 0's Recv of an
// ExScan is left as it is.
type Args struct {
	Kind       Kind
	Algorithm  Algorithm // Auto: the table selects one
	Send, Recv Buffer    // may be longer than needed; the rest is not accessed
	Root       int       // Bcast, Reduce, Gather, Scatter
	Bytes      int
	Reduction  kernel.Reduction // of the reductions

	// Sends are the parts of Send and their receivers (Exchange, Fold).
	Sends []Part
	// For Exchange, Recvs are the parts of Recv and their senders. For Fold, they are the members whose
	// vectors are combined into Recv, in this order; all have the length of the first. For ReduceScatterV,
	// they are the block of each rank, by rank and the same in all members; Peer is ignored.
	Recvs []Part
}

// A Part is N bytes at Off of a buffer that are received from or sent to Peer. The parts for one peer match
// that peer's parts in their order. Parts of length 0 are skipped. Parts for the caller itself are copied.
type Part struct{ Peer, Off, N int }

// prepare checks a call's arguments and makes it ready to be run: v then holds
// the call with its algorithm, and buffers of the very length that it uses. It
// sends nothing. Errors wrap ErrArgument.
func (t *Team) prepare(a *Args, v *invocation) error {
	if a.Kind == 0 || a.Kind >= farewell {
		return badf("no collective has the number %d", a.Kind)
	}
	if !fits(a.Kind, a.Algorithm) {
		return badf("%v has no algorithm %v", a.Kind, a.Algorithm)
	}
	op := &operations[a.Kind]
	// Field by field, here as in giveBack: the caller has just stored them so,
	// and a wider copy would wait for the stores to reach the cache.
	c := &v.call
	c.Kind, c.Algorithm, c.InPlace, c.Ordered, c.Pairs = a.Kind, a.Algorithm, false, false, false
	c.Rank, c.Size, c.Root, c.Bytes, c.Elem = t.rank, t.size, 0, a.Bytes, 1
	v.in.Mem, v.in.MR = a.Send.Mem, a.Send.MR
	v.out.Mem, v.out.MR = a.Recv.Mem, a.Recv.MR
	v.sends, v.recvs = nil, nil
	if op.rooted {
		if a.Root < 0 || a.Root >= t.size {
			return badf("root %d in a team of %d", a.Root, t.size)
		}
		c.Root = a.Root
	}
	if op.reduces {
		r := &a.Reduction
		if r.Func == nil || r.Elem < 1 || r.Elem > math.MaxUint16 {
			return badf("no reduction")
		}
		c.Elem, c.Ordered = r.Elem, r.Ordered
		v.reduction.Func, v.reduction.Elem, v.reduction.ID = r.Func, r.Elem, r.ID
		v.reduction.Ordered, v.reduction.Name = r.Ordered, r.Name
	}
	if op.parts != nil {
		c.Algorithm = op.ways[0].algorithm
		v.sends, v.recvs = a.Sends, a.Recvs
		return op.parts(v, &t.cache)
	}
	if a.Bytes < 0 || a.Bytes > math.MaxInt/t.size || a.Bytes%c.Elem != 0 {
		return badf("%d bytes of elements of %d, in a team of %d", a.Bytes, c.Elem, t.size)
	}
	if err := v.buffers(); err != nil {
		return err
	}
	t.selection.settle(c)
	return nil
}

// buffers checks the buffers of a call of equal blocks, and cuts them to what
// the call uses.
func (v *invocation) buffers() error {
	c, op := &v.call, &operations[v.call.Kind]
	root := c.Rank == c.Root
	if op.send == blocksAtRoot {
		return v.scattered(root)
	}
	send, recv := op.send.count(c.Size, root), op.recv.count(c.Size, root)
	canStay := send > 0 && recv > 0
	at := 0 // of the receive buffer, where the input in place begins
	switch {
	case op.recv == absent:
		c.Bytes = 0
	case canStay && recv > send:
		at = c.Rank * c.Bytes
	}
	if send == 0 {
		v.in = Buffer{}
	}
	if recv == 0 {
		v.out = Buffer{}
	}
	name := "receive"
	if op.send == absent {
		name = "broadcast"
	}
	if err := holds(name, v.out.Mem, recv, c.Bytes); err != nil {
		return err
	}
	if canStay {
		if v.in.Mem == nil {
			c.InPlace = true
		} else if _, same := overlap(v.in.Mem, v.out.Mem[at:]); same {
			c.InPlace = true
		}
	}
	if c.InPlace {
		v.in = Buffer{}
		recv = max(recv, send)
		if err := holds("in-place receive", v.out.Mem, recv, c.Bytes); err != nil {
			return err
		}
	} else if err := holds("send", v.in.Mem, send, c.Bytes); err != nil {
		return err
	}
	v.in.Mem, v.out.Mem = cut(v.in.Mem, send*c.Bytes), cut(v.out.Mem, recv*c.Bytes)
	if shared, _ := overlap(v.in.Mem, v.out.Mem); shared {
		return badf("send and receive buffers overlap")
	}
	return nil
}

// scattered is buffers for a Scatter, where it is the receive buffer that is not
// there in place.
func (v *invocation) scattered(root bool) error {
	c := &v.call
	total := c.Size * c.Bytes
	if !root {
		v.in = Buffer{}
	} else {
		if err := holds("send", v.in.Mem, c.Size, c.Bytes); err != nil {
			return err
		}
		v.in.Mem = cut(v.in.Mem, total)
		_, same := overlap(v.out.Mem, v.in.Mem[c.Rank*c.Bytes:])
		if v.out.Mem == nil || same {
			c.InPlace, v.out = true, Buffer{}
			return nil
		}
	}
	if err := holds("receive", v.out.Mem, 1, c.Bytes); err != nil {
		return err
	}
	v.out.Mem = cut(v.out.Mem, c.Bytes)
	if shared, _ := overlap(v.in.Mem, v.out.Mem); shared {
		return badf("send and receive buffers overlap")
	}
	return nil
}

// holds checks that mem holds n blocks.
func holds(name string, mem []byte, n, block int) error {
	if len(mem) < n*block {
		return badf("%s buffer has %d bytes, %d are needed", name, len(mem), n*block)
	}
	return nil
}

// cut is the first n bytes, or nothing of nothing.
func cut(mem []byte, n int) []byte {
	if mem == nil {
		return nil
	}
	return mem[:n:n]
}
