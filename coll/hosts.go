package coll

import "slices"

// Two levels: members that share a host meet at its leader, which is its first member, and
// the leaders exchange one message for each pair of hosts, a barrier fewer, or a broadcast goes
// along a tree of hosts. A message between hosts takes longer than several within one, and all members of a
// host have one link. For long vectors, which are a matter of bytes, see hostchain.go.
//
// Any placement is right: hosts of different sizes, ranks that take turns, one rank a
// host, all on one. Which hosts there are the members tell each other when the team is
// made, so that all make plans for the same placement.

// A placement says which members of a team share a host. It is never changed.
type placement struct {
	hosts [][]int // the members of each host, ascending; hosts in the order of their first members
	of    []int   // the host of each member
	at    []int   // and its index among that host's members
	// whole: each host's members are a run of ranks, so that combining host after host is
	// combining in the order of the ranks.
	whole bool
	// shared: some members have a host in common, and there are others.
	shared bool
	// relayed is the most pairs of a member of a host and one elsewhere.
	relayed int
	largest int // the most members of a host
}

// placementOf is that of members with these hosts.
func placementOf(names []uint64) *placement {
	p := &placement{of: make([]int, len(names)), at: make([]int, len(names)), whole: true}
	numbers := make(map[uint64]int, 1)
	for member, name := range names {
		h, met := numbers[name]
		if !met {
			h = len(p.hosts)
			numbers[name], p.hosts = h, append(p.hosts, nil)
		}
		p.whole = p.whole && (!met || names[member-1] == name)
		p.of[member], p.at[member] = h, len(p.hosts[h])
		p.hosts[h] = append(p.hosts[h], member)
	}
	for _, host := range p.hosts {
		p.largest = max(p.largest, len(host))
		p.relayed = max(p.relayed, len(host)*(len(names)-len(host)))
	}
	p.shared = len(p.hosts) > 1 && len(p.hosts) < len(names)
	return p
}

// placement is that of the plan's members: all are on one host where the tuning knows of none.
func (b *builder) placement() *placement {
	if b.tuning.hosts == nil {
		return placementOf(make([]uint64, b.call.Size))
	}
	return b.tuning.hosts
}

// others are all hosts but h, the next one first: no two leaders begin with the same one.
func (p *placement) others(h int) [][]int { return slices.Concat(p.hosts[h+1:], p.hosts[:h]) }

// levels is the members of the caller's host, the leader first, and all other hosts.
func (b *builder) levels() (mine []int, others [][]int) {
	p := b.placement()
	h := p.of[b.call.Rank]
	return p.hosts[h], p.others(h)
}

// Two-level barrier: the members of a host signal its leader, the leaders meet by
// dissemination, and then signal their members.
//
// Steps: ceil(log2 h) + 2 on h hosts. Bytes: none; a leader signals ceil(log2 h) others and each of its members.
func barrierTwoLevel(b *builder) {
	p := b.placement()
	h, hosts := p.of[b.call.Rank], len(p.hosts)
	mine := p.hosts[h]
	if leader := mine[0]; b.call.Rank != leader {
		b.signal(leader)
		b.take(leader)
		return
	}
	for _, r := range mine[1:] {
		b.take(r)
	}
	for dist := 1; dist < hosts; dist *= 2 {
		b.signal(p.hosts[(h+dist)%hosts][0])
		b.take(p.hosts[(h-dist+hosts)%hosts][0])
	}
	for _, r := range mine[1:] {
		b.signal(r)
	}
}

// Two-level broadcast: along a binomial tree of hosts, which count from the root's. There
// the root is the leader. A leader passes the vector on to other hosts first, and
// then to its members, in chunks as they come.
//
// Steps: floor(log2 h) + 1 on h hosts, and one a further chunk. Bytes: of the root the vector
// ceil(log2 h) times to other hosts, and once to each of its members.
func bcastTwoLevel(b *builder) {
	p, me, root := b.placement(), b.call.Rank, b.call.Root
	hosts := len(p.hosts)
	leader := func(v int) int { // of the host with number v in the tree
		if v == 0 {
			return root
		}
		return p.hosts[(v+p.of[root])%hosts][0]
	}
	v := (p.of[me] - p.of[root] + hosts) % hosts
	if me != leader(v) {
		b.passOn(leader(v), nil)
		return
	}
	var children []int
	low := lowest(v, hosts)
	for bit := low / 2; bit > 0; bit /= 2 {
		if v+bit < hosts {
			children = append(children, leader(v+bit))
		}
	}
	for _, r := range p.hosts[p.of[me]] {
		if r != me {
			children = append(children, r)
		}
	}
	parent := root
	if v != 0 {
		parent = leader(v - low)
	}
	b.passOn(parent, children)
}

// Two-level all-reduce, for short vectors: the leader of a host gathers the vectors of its
// members and sends them in one message to each other leader. Each leader combines the
// vectors of all ranks and gives its members the result. Vectors are not combined before
// they travel, so the order of combination is the same on any placement: that of the ranks,
// or that of recursive doubling in a team that does vectors of this length so on one host.
//
// Steps: 3. Bytes: a leader sends the vectors of its host to each other host, and the
// result to each of its members.
func allReduceTwoLevel(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	if n == 1 {
		b.copy(b.dest(), b.source(), bytes, false)
		return
	}
	mine, others := b.levels()
	if leader := mine[0]; me != leader {
		b.give(leader, b.source(), bytes)
		b.open(leader, b.dest(), bytes)
		b.get(leader, b.dest(), bytes)
		return
	}
	vectors, slots := gatherHosts(b, mine, others, b.source(), bytes)
	if b.call.InPlace {
		b.flushAll() // the output is about to be overwritten
	}
	if b.call.Pairs {
		foldPairs(b, b.dest(), vectors, bytes)
	} else {
		var spare loc
		if b.call.InPlace && me > 1 {
			spare = b.alloc(bytes)
		}
		b.fold(b.dest(), b.source(), spare, func(rank int) loc { return vectors[rank] }, bytes)
	}
	for _, leader := range slots {
		b.release(leader)
	}
	for _, r := range mine[1:] {
		b.give(r, b.dest(), bytes)
	}
}

// allVectors is the scratch of a leader that combines the vectors of all ranks: room for
// them, one more in place, and by pairs for what comes of them.
func allVectors(s *selection, c *Call) int {
	vectors := c.Size + 1
	if s.pairs(c) {
		vectors += c.Size
	}
	return vectors * c.Bytes
}

// gatherHosts has a leader gather n bytes of each member of its host, which give them, and
// exchange what its host has with the other leaders; its own bytes are at own. It says where
// each rank's bytes are, and which leaders' slots are held for that.
func gatherHosts(b *builder, mine []int, others [][]int, own loc, n int) (where []loc, held []int) {
	where = make([]loc, b.call.Size)
	all := own
	if len(mine) > 1 {
		all = b.alloc(len(mine) * n)
	}
	for i, r := range mine {
		if where[r] = all.plus(i * n); i > 0 {
			b.open(r, where[r], n)
		}
	}
	landing := b.openHosts(others, n)
	b.copy(all, own, n, false)
	for _, r := range mine[1:] {
		b.get(r, where[r], n)
	}
	where[mine[0]] = own
	for _, host := range others {
		b.give(host[0], all, len(mine)*n)
	}
	held = b.receiveHosts(others, landing, n)
	for i, host := range others {
		for k, r := range host {
			where[r] = landing[i].plus(k * n)
		}
	}
	return where, held
}

// Two-level all-gather: the leader of a host gathers the blocks of its members and sends them
// in one message to each other leader. Then each leader gives its members all blocks.
//
// Steps: 3. Bytes: a leader sends the blocks of its host to each other host, and all blocks
// to each of its members.
func allGatherTwoLevel(b *builder) {
	n, block, out := b.call.Size, b.call.Bytes, b.dest()
	if block == 0 {
		return
	}
	mine, others := b.levels()
	if leader := mine[0]; b.call.Rank != leader {
		b.give(leader, b.block(), block)
		b.open(leader, out, n*block)
		b.get(leader, out, n*block)
		return
	}
	blocks, slots := gatherHosts(b, mine, others, b.block(), block)
	for first, next := 0, 1; first < n; first, next = next, next+1 {
		for next < n && blocks[next] == blocks[first].plus((next-first)*block) {
			next++
		}
		b.copy(out.plus(first*block), blocks[first], (next-first)*block, false)
	}
	for _, leader := range slots {
		b.release(leader)
	}
	for _, r := range mine[1:] {
		b.give(r, out, n*block)
	}
}

// allBlocks is the scratch of a leader that holds a block of each rank.
func allBlocks(_ *selection, c *Call) int { return c.Size * c.Bytes }

// Two-level all-to-all, for short blocks: members of a host send each other their blocks, and
// its leader those for other hosts. The leader sends each other leader one message with what
// all its members have for that host, and gives each member what has come for it.
//
// Steps: 3. Bytes: a leader sends the blocks of its host's members for all others, and as many
// come back to its members.
func allToAllTwoLevel(b *builder) {
	block := b.call.Bytes
	if block == 0 || b.call.Size == 1 && b.call.InPlace {
		return
	}
	mine, others := b.levels()
	me, leader := b.call.Rank, mine[0]
	in, out := b.blocks(), b.dest()
	away := slices.Concat(others...) // the ranks of other hosts, in the order of what goes by the leader
	bytes := len(away) * block
	if me != leader {
		if bytes > 0 {
			packed := b.alloc(bytes)
			b.pack(packed, in, away, block)
			b.give(leader, packed, bytes)
		}
		allToAllWithin(b, mine, in, out)
		if bytes > 0 {
			var landing loc
			if !b.eager(bytes) {
				landing = b.alloc(bytes)
			}
			b.open(leader, landing, bytes)
			where, held := b.receive(leader, landing, bytes)
			b.unpack(out, where, away, block)
			if held {
				b.release(leader)
			}
		}
		return
	}
	if bytes == 0 {
		allToAllWithin(b, mine, in, out)
		return
	}
	packed := make([]loc, len(mine)) // of each member
	for i, r := range mine {
		if packed[i] = b.alloc(bytes); i > 0 {
			b.open(r, packed[i], bytes)
		}
	}
	landing := b.openHosts(others, len(mine)*block)
	b.pack(packed[0], in, away, block)
	for i, r := range mine[1:] {
		b.get(r, packed[i+1], bytes)
	}
	skip := 0 // what of a member's is for hosts before
	for _, host := range others {
		run := len(host) * block
		message := b.alloc(len(mine) * run)
		for i := range mine {
			b.copy(message.plus(i*run), packed[i].plus(skip), run, false)
		}
		b.give(host[0], message, len(mine)*run)
		skip += run
	}
	allToAllWithin(b, mine, in, out)
	held := b.receiveHosts(others, landing, len(mine)*block)
	for i, r := range mine {
		var result loc
		if i > 0 {
			result = b.alloc(bytes)
		}
		at := 0
		for h, host := range others {
			for k, from := range host {
				to := out.plus(from * block)
				if i > 0 {
					to = result.plus(at)
				}
				b.copy(to, landing[h].plus((k*len(mine)+i)*block), block, false)
				at += block
			}
		}
		if i > 0 {
			b.give(r, result, bytes)
		}
	}
	for _, peer := range held {
		b.release(peer)
	}
}

// throughLeaders is the scratch of a leader by whose hands all blocks between hosts go: as
// they come from its members, as they go to other hosts, and the same on the way back; in
// place, a copy of its own. It copies each of them by itself.
func throughLeaders(s *selection, c *Call) int {
	if s.hosts == nil {
		return c.Size * c.Bytes
	}
	return max((4*s.hosts.relayed+c.Size)*c.Bytes, s.hosts.relayed*bytesOfStep)
}

// Two-level reduce-scatter, for short blocks: the leader of a host gathers the vectors of its
// members and sends each other leader what they have for that host. Then it combines its
// members' blocks, in the order of the ranks on any placement, and gives them the results.
//
// Steps: 3. Bytes: a leader sends the blocks of its host's members for all others, and a block
// to each member, which has sent all of its own.
func reduceScatterTwoLevel(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	in, out := b.source(), b.dest()
	if block == 0 {
		return
	}
	if n == 1 {
		b.copy(out, in, block, false)
		return
	}
	mine, others := b.levels()
	if leader := mine[0]; me != leader {
		b.give(leader, in, n*block)
		if b.call.InPlace {
			b.flushAll() // the output is what was sent
		}
		b.open(leader, out, block)
		b.get(leader, out, block)
		return
	}
	vectors := make([]loc, len(mine))
	vectors[0] = in
	for i, r := range mine[1:] {
		vectors[i+1] = b.alloc(n * block)
		b.open(r, vectors[i+1], n*block)
	}
	landing := b.openHosts(others, len(mine)*block)
	for i, r := range mine[1:] {
		b.get(r, vectors[i+1], n*block)
	}
	for _, host := range others {
		run := len(host) * block
		message := b.alloc(len(mine) * run)
		for i := range mine {
			b.pack(message.plus(i*run), vectors[i], host, block)
		}
		b.give(host[0], message, len(mine)*run)
	}
	held := b.receiveHosts(others, landing, len(mine)*block)
	p := b.placement()
	for i := len(mine) - 1; i >= 0; i-- { // its own last: in place that overwrites its vector
		from := func(rank int) loc {
			if p.of[rank] == p.of[me] {
				return vectors[p.at[rank]].plus(mine[i] * block)
			}
			h := (p.of[rank] - p.of[me] - 1 + len(p.hosts)) % len(p.hosts)
			return landing[h].plus((p.at[rank]*len(mine) + i) * block)
		}
		result := out
		if i > 0 {
			result = b.alloc(block)
		}
		have := from(0)
		for r := 1; r < n; r++ {
			b.reduce(result, have, from(r), block, false)
			have = result
		}
		if i > 0 {
			b.give(mine[i], result, block)
		}
	}
	for _, peer := range held {
		b.release(peer)
	}
}

// vectorsOfHosts is the scratch of a leader that holds the vectors of its members, and what
// these and those of other hosts have for each other. It combines a block of each rank for each
// member.
func vectorsOfHosts(s *selection, c *Call) int {
	if s.hosts == nil {
		return c.Size * max((c.Size+1)*c.Bytes, c.Size*bytesOfStep)
	}
	return max((3*s.hosts.relayed+s.hosts.largest*(s.hosts.largest+1))*c.Bytes, s.hosts.largest*c.Size*bytesOfStep)
}

// pack puts the blocks for some ranks together, those of ranks that follow each other by one
// copy; unpack puts them at their ranks' places.
func (b *builder) pack(to, blocks loc, ranks []int, block int) {
	runsOf(ranks, func(at, first, n int) { b.copy(to.plus(at*block), blocks.plus(first*block), n*block, false) })
}

func (b *builder) unpack(blocks, from loc, ranks []int, block int) {
	runsOf(ranks, func(at, first, n int) { b.copy(blocks.plus(first*block), from.plus(at*block), n*block, false) })
}

// runsOf calls f for each run of n ranks that follow each other, where it begins in the list
// and its first rank.
func runsOf(ranks []int, f func(at, first, n int)) {
	for at, next := 0, 1; at < len(ranks); at, next = next, next+1 {
		for next < len(ranks) && ranks[next] == ranks[at]+next-at {
			next++
		}
		f(at, ranks[at], next-at)
	}
}

// openHosts lets a message of n bytes for each of its ranks come from each other host's leader;
// receiveHosts waits for them, says where they are, and whose slots are held for that.
func (b *builder) openHosts(others [][]int, n int) (landing []loc) {
	landing = make([]loc, len(others))
	for i, host := range others {
		if bytes := len(host) * n; !b.eager(bytes) {
			landing[i] = b.alloc(bytes)
		}
		b.open(host[0], landing[i], len(host)*n)
	}
	return landing
}

func (b *builder) receiveHosts(others [][]int, landing []loc, n int) (held []int) {
	for i, host := range others {
		var slot bool
		if landing[i], slot = b.receive(host[0], landing[i], len(host)*n); slot {
			held = append(held, host[0])
		}
	}
	return held
}

// allToAllWithin is the direct all-to-all among the members of a host.
func allToAllWithin(b *builder, mine []int, in, out loc) {
	me, block, k := b.call.Rank, b.call.Bytes, len(mine)
	at := b.placement().at[me]
	for i := 1; i < k; i++ {
		from := mine[(at-i+k)%k]
		b.open(from, out.plus(from*block), block)
	}
	for i := 1; i < k; i++ {
		to := mine[(at+i)%k]
		b.give(to, in.plus(to*block), block)
	}
	b.copy(out.plus(me*block), in.plus(me*block), block, false)
	for i := 1; i < k; i++ {
		from := mine[(at-i+k)%k]
		b.get(from, out.plus(from*block), block)
	}
}

// foldPairs combines n bytes of all ranks in the order of recursive doubling: where their
// number is no power of two, pairs of the first ones before; then neighbours, and
// neighbours of what came of these.
func foldPairs(b *builder, dst loc, vectors []loc, n int) {
	p := 1
	for 2*p <= len(vectors) {
		p *= 2
	}
	room := b.alloc(p * n) // number i of a round's results is at i
	left := len(vectors) - p
	list := make([]loc, 0, p)
	for i := range left {
		list = append(list, room.plus(i*n))
		b.reduce(list[i], vectors[2*i], vectors[2*i+1], n, false)
	}
	list = append(list, vectors[2*left:]...)
	for len(list) > 1 {
		for i := 0; i < len(list); i += 2 {
			to := dst
			if len(list) > 2 {
				to = room.plus(i / 2 * n)
			}
			b.reduce(to, list[i], list[i+1], n, false)
			list[i/2] = to
		}
		list = list[:len(list)/2]
	}
}
