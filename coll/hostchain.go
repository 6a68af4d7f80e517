package coll

// Host-chain all-reduce, for long vectors on hosts that several members share. Each host has
// as many carriers as the smallest host has members, its first ones, and carrier i of each host
// sees to portion i of the vector. A portion goes from host to host and back, in pieces:
//
//	           sum of the hosts so far          sum with this host's
//	before  --------------------------> carrier -------------------> after
//	before  <-------------------------- carrier <------------------- after
//	                  result             |   ^         result
//	                            result   v   |  inputs
//	                            members of its host
//
// Only carriers of the same portion on neighbouring hosts exchange messages. Within a host a
// carrier reads the inputs, and writes the outputs, where they lie.
//
// Combining host after host is combining in the order of the ranks, so the bits are those of
// a team on one host. For that a host's members have to be a run of ranks: where they are
// not, or where no host is shared, it is reduceScatterGather. From three hosts on, a
// reduce-scatter among hosts of what each has combined would move less, 2(h-1)/h vectors out of
// each and not 2, but a sum of sums has other bits.
//
// Steps: 2h on h hosts, and one a further piece. Bytes: the vector once from each host to each
// neighbouring one; within a host each input is read once and each output written once.
func allReduceHostChain(b *builder) {
	p, me := b.placement(), b.call.Rank
	switch {
	case b.call.Bytes == 0:
		return
	case !p.shared || !p.whole:
		reduceScatterGather(b)
		return
	}
	host, i := p.of[me], p.at[me]
	mine := p.hosts[host]
	carriers := b.call.Bytes / b.call.Elem
	for _, members := range p.hosts {
		carriers = min(carriers, len(members))
	}
	var c *carrier
	if i < carriers {
		c = &carrier{b: b, mine: mine, own: b.call.portion(i, carriers), size: b.pieceSize(), before: nobody, after: nobody}
		if host > 0 {
			c.before = p.hosts[host-1][i]
		}
		if host+1 < len(p.hosts) {
			c.after = p.hosts[host+1][i]
		}
		c.open(len(p.hosts) - 1 - host)
	}
	for _, r := range mine[:carriers] {
		if r != me {
			b.exposeOperands(r, true, true, b.call.Bytes)
		}
	}
	if c != nil {
		c.run()
	}
	for _, r := range mine[:carriers] {
		if r != me {
			b.take(r)
		}
	}
}

// leastHop is how many bytes of its vector a host's members must have together to be worth a hop
// of the chain. By coll/sim, on links of 1.25 and 2 GB/s and of 20 and 7 us, two ranks on each of h
// hosts are as fast by the chain as by reduceScatterGather from 128 KiB on for h = 3, 256 KiB
// for h = 8 and 512 KiB for h = 16. Four take half the time with these.
const leastHop = 64 << 10

// chains tells whether a call is worth a chain of the hosts.
func (p *placement) chains(c *Call) bool {
	if p == nil || !p.shared || !p.whole {
		return false
	}
	return c.Bytes/(len(p.hosts)-1) >= leastHop/(len(p.of)/len(p.hosts))
}

// A carrier is the member of its host that sees to a portion. In turn t it
//
//	collects  the result of piece t-ahead from the host after, and delivers it,
//	forwards  piece t: takes the sum of the hosts before, adds its host's, passes it on.
//
// ahead is how many pieces are on their way down the chain and back when all hosts are at work.
// The host after has room for as many: the result of a piece says that its place is free. In
// the last host the sum is the result.
//
// Nothing waits in a circle: collecting waits for the host after to have made an earlier turn,
// forwarding for the host before to have made the same one.
type carrier struct {
	b             *builder
	mine          []int // the members of its host
	own           portion
	size          int // of a piece
	before, after int // the carriers of its portion on the neighbouring hosts, or nobody
	ahead         int // twice the hosts after its own

	landing loc // of the sums of the hosts before: as many pieces as the carrier there is ahead
	fetched loc // a piece of another member's input
	spare   loc // a piece of what is combined before the own input
}

// open exposes to the carriers before and after what they write to; below is how many hosts
// are after its own.
func (c *carrier) open(below int) {
	b, piece := c.b, min(c.size, c.own.n)
	c.ahead = 2 * below
	if c.before != nobody {
		room := min((c.ahead+2)*c.size, c.own.n)
		c.landing = b.alloc(room)
		b.expose(c.before, 0, c.landing, room)
	} else if c.mine[0] != b.call.Rank && b.call.InPlace {
		c.spare = b.alloc(piece)
	}
	if len(c.mine) > 1 {
		c.fetched = b.alloc(piece)
	}
	if c.after != nobody {
		b.expose(c.after, 1, b.dest().plus(c.own.off), c.own.n)
	}
}

// run makes the carrier's turns. In the end it tells the members of its host that it has done
// with their memory.
func (c *carrier) run() {
	b, me := c.b, c.b.call.Rank
	for _, r := range c.mine {
		if r != me {
			b.learnOperands(r, true, true)
		}
	}
	if c.before != nobody {
		b.learn(c.before, 1)
	}
	total := pieces(c.own.n, c.size)
	for t := range total + c.ahead {
		if k := t - c.ahead; k >= 0 && c.after != nobody {
			b.take(c.after)
			c.deliver(part(c.own.n, c.size, k))
		}
		if t >= total {
			continue
		}
		x := part(c.own.n, c.size, t)
		sum := c.combine(t, x)
		if c.after == nobody {
			c.deliver(x)
			continue
		}
		if t == 0 {
			b.learn(c.after, 0)
		}
		b.put(c.after, 0, t%c.ahead*c.size, sum, x.n)
	}
	for _, r := range c.mine {
		if b.flush(r); r != me {
			b.signal(r)
		}
	}
}

// combine adds the inputs of the host to piece k, in the order of the ranks, and says where the
// sum is: in the output, but for a host of one member that is the first. In place, what comes
// before the own input is gathered where the sum came, or in spare.
func (c *carrier) combine(k int, x portion) loc {
	b, me, off := c.b, c.b.call.Rank, c.own.off+x.off
	own, out := b.source().plus(off), b.dest().plus(off)
	before, have := c.spare, loc{}
	if c.before != nobody {
		b.take(c.before)
		before = c.landing.plus(k % (c.ahead + 2) * c.size)
		have = before
	}
	for _, r := range c.mine {
		next, to := own, out
		if r != me {
			if next = c.fetched; r < me && own == out {
				to = before
			}
			if have.operand == none {
				next = to
			}
			b.pull(r, off, next, x.n)
			b.flush(r)
		}
		if have.operand == none {
			have = next
			continue
		}
		b.reduce(to, have, next, x.n, false)
		have = to
	}
	return have
}

// deliver passes a piece of the result, which is in the output, back along the chain and to the
// members of the host.
func (c *carrier) deliver(x portion) {
	b, result := c.b, c.b.dest().plus(c.own.off+x.off)
	if c.before != nobody {
		b.put(c.before, 1, x.off, result, x.n)
	}
	for _, r := range c.mine {
		if r != b.call.Rank {
			b.write(r, 1, c.own.off+x.off, result, x.n)
		}
	}
}
