package coll

import (
	"cmp"
	"slices"
)

// within checks that a part lies in its buffer, in whole elements.
func (v *invocation) within(name string, i int, p *Part, mem []byte, elem int) error {
	if p.Peer < 0 || p.Peer >= v.call.Size {
		return badf("%s part %d: peer %d in a team of %d", name, i, p.Peer, v.call.Size)
	}
	if p.N < 0 || p.Off < 0 || p.N > len(mem) || p.Off > len(mem)-p.N {
		return badf("%s part %d: %d bytes at %d of a buffer of %d", name, i, p.N, p.Off, len(mem))
	}
	if p.N%elem != 0 {
		return badf("%s part %d: %d bytes of elements of %d", name, i, p.N, elem)
	}
	return nil
}

// movement checks an Exchange.
func (v *invocation) movement(known *cache) error {
	for i := range v.sends {
		if err := v.within("send", i, &v.sends[i], v.in.Mem, 1); err != nil {
			return err
		}
	}
	for i := range v.recvs {
		if err := v.within("receive", i, &v.recvs[i], v.out.Mem, 1); err != nil {
			return err
		}
	}
	if err := v.selfParts(); err != nil {
		return err
	}
	return v.apart(known)
}

// apart checks that no part is received over another, nor over one that is sent.
func (v *invocation) apart(known *cache) error {
	list := known.extents[:0]
	in, out := addressOf(v.in.Mem), addressOf(v.out.Mem)
	for _, p := range v.recvs {
		if p.N > 0 {
			list = append(list, extent{at: out + uint64(p.Off), n: uint64(p.N), receives: true})
		}
	}
	shared, _ := overlap(v.in.Mem, v.out.Mem)
	if v.shares, v.shift = shared, out-in; shared {
		for _, p := range v.sends {
			if p.N > 0 {
				list = append(list, extent{at: in + uint64(p.Off), n: uint64(p.N)})
			}
		}
	}
	known.extents = list
	slices.SortFunc(list, func(a, b extent) int { return cmp.Compare(a.at, b.at) })
	var sends, recvs uint64 // up to where those so far reach
	for _, x := range list {
		switch {
		case x.receives && x.at < recvs:
			return badf("receive parts overlap")
		case x.receives && x.at < sends, x.at < recvs:
			return badf("send and receive parts overlap")
		case x.receives:
			recvs = x.at + x.n
		default:
			sends = max(sends, x.at+x.n)
		}
	}
	return nil
}

// An extent is where a part is in memory.
type extent struct {
	at, n    uint64
	receives bool
}

// selfParts checks that what a member sends itself is what it receives.
func (v *invocation) selfParts() error {
	next := func(parts []Part, i int) int {
		for i < len(parts) && (parts[i].Peer != v.call.Rank || parts[i].N == 0) {
			i++
		}
		return i
	}
	i, k := next(v.sends, 0), next(v.recvs, 0)
	for i < len(v.sends) && k < len(v.recvs) {
		if v.sends[i].N != v.recvs[k].N {
			return badf("this rank sends itself %d bytes and receives %d", v.sends[i].N, v.recvs[k].N)
		}
		i, k = next(v.sends, i+1), next(v.recvs, k+1)
	}
	switch {
	case i < len(v.sends):
		return badf("this rank sends itself %d bytes and receives none of them", v.sends[i].N)
	case k < len(v.recvs):
		return badf("this rank receives %d bytes of itself and does not send them", v.recvs[k].N)
	}
	return nil
}

// vector checks a ReduceScatterV.
func (v *invocation) vector(*cache) error {
	c := &v.call
	if len(v.recvs) != v.call.Size {
		return badf("%d blocks for a team of %d", len(v.recvs), v.call.Size)
	}
	if v.in.Mem == nil {
		c.InPlace = true
	} else if _, same := overlap(v.in.Mem, v.out.Mem); same {
		c.InPlace = true
	}
	from, name := v.in.Mem, "send"
	if c.InPlace {
		from, name, v.in = v.out.Mem, "in-place receive", Buffer{}
	}
	hash := uint64(0)
	end := 0
	for i := range v.recvs {
		p := v.recvs[i]
		p.Peer = i
		if err := v.within(name, i, &p, from, c.Elem); err != nil {
			return err
		}
		c.Bytes += p.N
		end = max(end, p.Off+p.N)
		hash = (hash ^ uint64(p.N)) * 0x9e3779b97f4a7c15
		hash = (hash ^ hash>>32 ^ uint64(p.Off)) * 0xbf58476d1ce4e5b9
	}
	c.Root = int(int32(hash >> 32))
	if c.InPlace {
		v.out.Mem = cut(v.out.Mem, end)
		return nil
	}
	if err := holds("receive", v.out.Mem, 1, v.recvs[v.call.Rank].N); err != nil {
		return err
	}
	v.in.Mem, v.out.Mem = cut(v.in.Mem, end), cut(v.out.Mem, v.recvs[v.call.Rank].N)
	if shared, _ := overlap(v.in.Mem, v.out.Mem); shared {
		return badf("send and receive buffers overlap")
	}
	return nil
}

// fold checks a Fold.
func (v *invocation) fold(known *cache) error {
	own := -1
	seen := known.members(v.call.Size)
	for i := range v.sends {
		p := &v.sends[i]
		if err := v.within("send", i, p, v.in.Mem, v.call.Elem); err != nil {
			return err
		}
		if seen[p.Peer]&1 != 0 {
			return badf("two parts for peer %d", p.Peer)
		}
		seen[p.Peer] |= 1
		if p.Peer == v.call.Rank {
			own = p.N
		}
	}
	bytes := 0
	if len(v.recvs) > 0 {
		bytes = v.recvs[0].N
	}
	for i := range v.recvs {
		p := &v.recvs[i]
		if err := v.within("receive", i, p, v.out.Mem, v.call.Elem); err != nil {
			return err
		}
		if seen[p.Peer]&2 != 0 {
			return badf("two parts of peer %d", p.Peer)
		}
		seen[p.Peer] |= 2
		if p.Off != 0 || p.N != bytes {
			return badf("receive part %d: %d bytes at %d, where all are %d at 0", i, p.N, p.Off, bytes)
		}
		if p.Peer == v.call.Rank && own != bytes {
			return badf("this rank sends itself %d bytes and receives %d", max(own, 0), bytes)
		}
	}
	if own >= 0 && seen[v.call.Rank]&2 == 0 {
		return badf("this rank sends itself %d bytes and receives none of them", own)
	}
	v.out.Mem = cut(v.out.Mem, bytes)
	if shared, _ := overlap(v.in.Mem, v.out.Mem); shared {
		return badf("send and receive buffers overlap")
	}
	return nil
}
