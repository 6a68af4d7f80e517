package rank

import (
	"reflect"

	"github.com/gorun-mpi/gorun/coll"
)

func (k *call) reduce(send, recv Buffer, op Op, root int) *call {
	r, peer := k.rooted(root)
	if k.err != nil {
		return k
	}
	c := k.comm
	if c.inter {
		k.args.Kind = coll.Fold
		switch r {
		case isRoot:
			k.fromAll(0, k.vector(&k.recv, &recv, op, toWrite))
		case giver:
			n, _, _ := k.vectors(&send, nil, op)
			k.to(peer, 0, n)
		case bystander:
			k.exchange() // of nothing
		}
		return k
	}
	var n int
	if r == isRoot {
		sent, received, here := k.vectors(&send, &recv, op)
		if !here {
			k.same("send", sent, received)
		}
		n = received
	} else {
		n, _, _ = k.vectors(&send, nil, op)
	}
	k.args.Kind, k.args.Root, k.args.Bytes = coll.Reduce, root, n
	return k
}

// fromAll receives n bytes of each rank of the other group, step bytes apart; toAll sends them so many.
func (k *call) fromAll(step, n int) {
	for i := range k.comm.others() {
		k.from(k.comm.remoteMember(i), i*step, n)
	}
}

func (k *call) toAll(step, n int) {
	for i := range k.comm.others() {
		k.to(k.comm.remoteMember(i), i*step, n)
	}
}

func (k *call) allreduce(send, recv Buffer, op Op) *call {
	sent, received, here := k.vectors(&send, &recv, op)
	if k.err != nil {
		return k
	}
	c := k.comm
	k.args.Kind, k.args.Bytes = coll.AllReduce, received
	if c.inter {
		k.notHere(here)
		k.args.Kind = coll.Fold
		k.toAll(0, sent)
		k.fromAll(0, received)
		return k
	}
	if !here {
		k.same("send", sent, received)
	}
	return k
}

// scatterBlock is a reduce-scatter of equal blocks. Between groups the vectors of
// both have the same length, which each group cuts into as many blocks as it has
// ranks.
func (k *call) scatterBlock(send, recv Buffer, op Op) *call {
	sent, received, here := k.vectors(&send, &recv, op)
	if k.err != nil {
		return k
	}
	c := k.comm
	if c.inter {
		k.notHere(here)
		k.args.Kind = coll.Fold
		out := k.equal("send", &send, sent, c.others())
		k.toAll(out, out)
		k.fromAll(0, received)
		return k
	}
	block := received
	if here {
		block = k.equal("recv", &recv, received, c.size)
	} else {
		k.same("send", sent, c.size*block)
	}
	k.args.Kind, k.args.Bytes = coll.ReduceScatter, block
	return k
}

// reduceScatter has blocks of counts items. Between groups a rank does not know how
// the other group cuts its vector: it sends all of it, and each keeps its part.
func (k *call) reduceScatter(send, recv Buffer, counts []int, op Op) *call {
	c := k.comm
	if k.err != nil || !k.counted("receive", counts, nil, c.size) {
		return k
	}
	total, before := 0, 0
	for r, n := range counts {
		if n < 0 {
			k.fault(badClass(ClassCount, "count %d for rank %d: expected 0 or more", n, r))
			return k
		}
		if r < c.rank {
			before += n
		}
		total += n
	}
	sent, received, here := k.vectors(&send, &recv, op)
	if k.err != nil {
		return k
	}
	in := &send
	if here {
		in = &recv
	}
	if in.count != total {
		k.fault(badClass(ClassCount, "send holds %d items, but the counts add up to %d", in.count, total))
		return k
	}
	elem := 0 // bytes of an item as it travels
	switch {
	case total == 0:
	case here:
		elem = received / total
	default:
		elem = sent / total
	}
	if !here {
		k.same("recv", received, counts[c.rank]*elem)
	}
	if c.inter {
		k.notHere(here)
		k.args.Kind = coll.Fold
		k.toAll(0, sent)
		k.fromAll(0, total*elem)
		k.keepPart(before*elem, received, total*elem)
		return k
	}
	k.args.Kind = coll.ReduceScatterV
	at := 0
	for r, n := range counts {
		k.from(r, at, n*elem)
		at += n * elem
	}
	return k
}

// keepPart has the team's output be total bytes, of which the receive operand gets
// n from off on.
func (k *call) keepPart(off, n, total int) {
	s := &k.recv
	if len(s.stages) == 0 {
		s.stages = append(s.stages, stage{t: plainTypes[reflect.Uint8].core, mem: s.mem})
	}
	s.stages[0].at, s.stages[0].n = off, n
	if cap(s.packed) < total {
		s.packed = make([]byte, total)
	}
	s.packed = s.packed[:total]
}

// scan is a scan or an exscan.
func (k *call) scan(kind coll.Kind, send, recv Buffer, op Op) *call {
	sent, received, here := k.vectors(&send, &recv, op)
	if !k.onlyIntra() {
		return k
	}
	if !here {
		k.same("send", sent, received)
	}
	// Rank 0's output of an exscan stays as it is, also where it has gaps.
	k.recv.before = true
	k.args.Kind, k.args.Bytes = kind, received
	return k
}
