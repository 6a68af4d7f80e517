package rank

import "github.com/gorun-mpi/gorun/coll"

// Binding: what each collective makes of its operands. On an ordinary communicator
// most have a kind of their own; the v and w forms, and all movement between the
// groups of an intercommunicator, are exchanges of parts; reductions there are folds.

// Root is given as the root of a rooted collective on an intercommunicator
// by the rank that is the root (MPI_ROOT). The other ranks of its group
// give [ProcNull], and the ranks of the other group give the root's rank.
const Root = -3

// A role is a rank's part in a rooted collective.
type role uint8

const (
	giver     role = iota // gives to or takes from the root
	isRoot                // of the own group, or as Root
	bystander             // of the root's group, on an intercommunicator
)

// rooted checks a root. For a giver, peer is the root as a member of the team.
func (k *call) rooted(root int) (r role, peer int) {
	if k.err != nil {
		return bystander, 0
	}
	c := k.comm
	if c.inter {
		switch root {
		case Root:
			return isRoot, 0
		case ProcNull:
			return bystander, 0
		}
	}
	if root < 0 || root >= c.peers.Size() {
		k.fault(badClass(ClassRoot, "root %d in a communicator of %d ranks", root, c.peers.Size()))
		return bystander, 0
	}
	if !c.inter && root == c.rank {
		return isRoot, root
	}
	return giver, c.remoteMember(root)
}

// others is how many ranks messages name: the other group's, or the own's.
func (c *Comm) others() int { return c.peers.Size() }

// exchange has the call be one of parts.
func (k *call) exchange() { k.args.Kind = coll.Exchange }

// equal cuts the n bytes of an operand into blocks of as many items each.
func (k *call) equal(name string, b *Buffer, n, blocks int) int {
	if k.err == nil && b.count%blocks != 0 {
		k.fault(badClass(ClassCount, "%s holds %d items, which cannot be divided into %d equal blocks", name, b.count, blocks))
	}
	return n / blocks
}

// same checks that two lengths which must be equal are.
func (k *call) same(what string, got, want int) {
	if k.err == nil && got != want {
		k.fault(badClass(ClassCount, "%s holds %d bytes, expected %d", what, got, want))
	}
}

// notHere refuses in place where there is none.
func (k *call) notHere(here bool) {
	if here && k.err == nil {
		k.fault(badClass(ClassBuffer, "the call cannot work in place here: pass a send and a receive operand"))
	}
}

// onlyIntra refuses intercommunicators.
func (k *call) onlyIntra() bool {
	if k.err == nil && k.comm.inter {
		k.fault(badClass(ClassComm, "the call is not possible on an intercommunicator"))
	}
	return k.err == nil
}

func (k *call) barrier() *call {
	k.args.Kind = coll.Barrier
	return k
}

func (k *call) bcast(b Buffer, root int) *call {
	r, peer := k.rooted(root)
	c := k.comm
	if k.err == nil && c.inter {
		k.exchange()
		switch r {
		case isRoot:
			k.toAll(0, k.whole(&k.send, &b, toRead))
		case giver:
			k.from(peer, 0, k.whole(&k.recv, &b, toWrite))
		}
		return k
	}
	u := toWrite
	if r == isRoot {
		u = toRead
	}
	n := k.whole(&k.recv, &b, u)
	k.args.Kind, k.args.Root, k.args.Bytes = coll.Bcast, root, n
	k.recv.before, k.recv.stays = r == isRoot, r == isRoot
	return k
}

func (k *call) gather(send, recv Buffer, root int) *call {
	r, peer := k.rooted(root)
	if k.err != nil {
		return k
	}
	c := k.comm
	if c.inter {
		k.exchange()
		switch r {
		case isRoot:
			block := k.equal("recv", &recv, k.output(&recv, false), c.others())
			k.fromAll(block, block)
		case giver:
			n, _ := k.input(&send)
			k.notHere(send.in)
			k.to(peer, 0, n)
		}
		return k
	}
	n, here := k.input(&send)
	if r == isRoot {
		block := k.equal("recv", &recv, k.output(&recv, here), c.size)
		if !here {
			k.same("send", n, block)
		}
		n = block
	} else {
		k.notHere(send.in)
	}
	k.args.Kind, k.args.Root, k.args.Bytes = coll.Gather, root, n
	return k
}

func (k *call) scatter(send, recv Buffer, root int) *call {
	r, peer := k.rooted(root)
	if k.err != nil {
		return k
	}
	c := k.comm
	if c.inter {
		k.exchange()
		switch r {
		case isRoot:
			n, _ := k.input(&send)
			k.notHere(send.in)
			block := k.equal("send", &send, n, c.others())
			k.toAll(block, block)
		case giver:
			k.from(peer, 0, k.output(&recv, false))
		}
		return k
	}
	n := 0
	if here := r == isRoot && recv.here(); !here {
		n = k.output(&recv, false)
	}
	if r == isRoot {
		k.notHere(send.in)
		total, _ := k.input(&send)
		block := k.equal("send", &send, total, c.size)
		if !recv.here() {
			k.same("recv", n, block)
		}
		n = block
	}
	k.args.Kind, k.args.Root, k.args.Bytes = coll.Scatter, root, n
	return k
}

func (k *call) allgather(send, recv Buffer) *call {
	if k.err != nil {
		return k
	}
	c := k.comm
	n, here := k.input(&send)
	block := k.equal("recv", &recv, k.output(&recv, here), c.others())
	if c.inter {
		k.notHere(here)
		k.exchange()
		k.toAll(0, n)
		k.fromAll(block, block)
		return k
	}
	if !here {
		k.same("send", n, block)
	}
	k.args.Kind, k.args.Bytes = coll.AllGather, block
	return k
}

func (k *call) alltoall(send, recv Buffer) *call {
	if k.err != nil {
		return k
	}
	c := k.comm
	n, here := k.input(&send)
	total := k.output(&recv, here)
	block := k.equal("recv", &recv, total, c.others())
	if c.inter {
		k.notHere(here)
		k.exchange()
		out := k.equal("send", &send, n, c.others())
		k.toAll(out, out)
		k.fromAll(block, block)
		return k
	}
	if !here {
		k.same("send", n, total)
	}
	k.args.Kind, k.args.Bytes = coll.AllToAll, block
	return k
}
