package coll

// A schedule is the numbers of parts, by rounds: the k-th part with any peer is
// in round k.
type schedule struct {
	order  []int32
	rounds []int32 // where each round ends in order
	first  []int32 // of each round: where the peers above the caller begin in it
}

// arrange makes the schedule of parts, without those of no bytes. It takes time
// for the parts only, however many members there are.
func (s *schedule) arrange(parts []Part, count []int32, me int) {
	s.order, s.rounds, s.first = s.order[:0], s.rounds[:0], s.first[:0]
	forget := func() {
		for i := range parts {
			count[parts[i].Peer] = 0
		}
	}
	total := int32(0)
	for i := range parts {
		if p := &parts[i]; p.N > 0 {
			k := count[p.Peer]
			if count[p.Peer]++; int(k) == len(s.rounds) {
				s.rounds, s.first = append(s.rounds, 0), append(s.first, -1)
			}
			s.rounds[k]++
			total++
		}
	}
	forget()
	at := int32(0)
	for k, n := range s.rounds {
		s.rounds[k] = at // for now where the next part goes
		at += n
	}
	for range total {
		s.order = append(s.order, 0)
	}
	for i := range parts {
		if p := &parts[i]; p.N > 0 {
			k := count[p.Peer]
			count[p.Peer]++
			if p.Peer > me && s.first[k] < 0 {
				s.first[k] = s.rounds[k]
			}
			s.order[s.rounds[k]] = int32(i)
			s.rounds[k]++
		}
	}
	forget()
}

// round calls f with the number of each part of round k. It begins with the peers
// above the caller, so that not all begin with the same one.
func (s *schedule) round(k int, f func(i int32)) {
	if k >= len(s.rounds) {
		return
	}
	begin, end := int32(0), s.rounds[k]
	if k > 0 {
		begin = s.rounds[k-1]
	}
	middle := max(s.first[k], begin)
	for _, i := range s.order[middle:end] {
		f(i)
	}
	for _, i := range s.order[begin:middle] {
		f(i)
	}
}

// Exchange: whatever movement of parts there is, in rounds: round k moves the k-th
// part that there is from any rank to any other. In a round a rank
//
//	opens     for each long part that comes: its descriptor,
//	sends     the short parts; and copies its own,
//	puts      the long parts, each when its descriptor has come,
//	collects  what comes.
//
// It cannot deadlock. Of all ranks take one that is least far, by round and then by
// these four. What it waits for is a descriptor, or data, of the same round, which
// its peer has sent in an earlier one of the four or waits to send; or it waits for
// a slot. The peer is at least as far, so it has sent the descriptor if the rank
// puts, and the data if the rank collects. It has taken all messages of earlier
// rounds, of which it owes less than half a ring, and in a round there are at most
// two from one rank to another: there is a slot, for a ring has eight or more.
//
// Both ends of a channel have the messages in the same order: in each round the
// descriptor first and then the part. Every message tells its part's length in its
// fingerprint.
//
// Steps: 1 a round (2 by descriptor). Bytes: the parts.
func exchangeRounds(b *builder) {
	me := b.call.Rank
	in, out := loc{operand: input}, loc{operand: output}
	b.outgoing.arrange(b.sends, b.count, me)
	b.incoming.arrange(b.recvs, b.count, me)
	for k := range max(len(b.outgoing.rounds), len(b.incoming.rounds)) {
		from, to := -1, -1 // the own part
		b.incoming.round(k, func(i int32) {
			p := &b.recvs[i]
			if p.Peer == me {
				to = p.Off
				return
			}
			b.sized(p.N)
			b.open(p.Peer, out.plus(p.Off), p.N)
		})
		b.outgoing.round(k, func(i int32) {
			p := &b.sends[i]
			b.sized(p.N)
			if p.Peer == me {
				from = int(i)
			} else if b.eager(p.N) {
				b.give(p.Peer, in.plus(p.Off), p.N)
			}
		})
		if from >= 0 {
			b.copy(out.plus(to), in.plus(b.sends[from].Off), b.sends[from].N, false)
		}
		b.outgoing.round(k, func(i int32) {
			if p := &b.sends[i]; p.Peer != me && !b.eager(p.N) {
				b.sized(p.N)
				b.give(p.Peer, in.plus(p.Off), p.N)
			}
		})
		b.incoming.round(k, func(i int32) {
			if p := &b.recvs[i]; p.Peer != me {
				b.sized(p.N)
				b.get(p.Peer, out.plus(p.Off), p.N)
			}
		})
	}
}
