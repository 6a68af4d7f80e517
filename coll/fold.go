package coll

// Direct fold: every rank sends vectors to some, and a rank that gets any combines them in
// the order that it names. Long ones go by descriptor and in pieces: in turn s a
// rank
//
//	pushes    piece s of each vector that it sends into that peer's scratch,
//	combines  piece s-1 of those that it gets, and signals that it has,
//	collects  the signals for its pieces s-2.
//
// A rank's scratch has a window of 3 pieces for each peer, and a signal is left out
// where no piece follows into the place that it frees. It cannot deadlock, by the
// argument of the Exchange: of all ranks the one that is least far, by turn and then
// by these three, waits for nothing.
//
// Steps: 1, and one a further piece. Bytes: the vectors.
func foldDirect(b *builder) {
	me, size := b.call.Rank, b.pieceSize()
	in := loc{operand: input}
	bytes := 0 // of each vector that comes
	if len(b.recvs) > 0 {
		bytes = b.recvs[0].N
	}
	room := min(window*size, bytes)
	for i := range b.recvs {
		if p := &b.recvs[i]; p.Peer != me && !b.eager(bytes) {
			b.sized(bytes)
			b.landing[p.Peer] = b.alloc(room)
			b.expose(p.Peer, 0, b.landing[p.Peer], room)
		}
	}
	turns := pieces(bytes, size)
	for i := range b.sends {
		switch p := &b.sends[i]; {
		case p.Peer == me:
			b.landing[me] = in.plus(p.Off)
		case b.eager(p.N) && p.N > 0:
			b.sized(p.N)
			b.send(p.Peer, in.plus(p.Off), p.N)
		default:
			turns = max(turns, pieces(p.N, size))
		}
	}
	long := func(f func(p *Part)) {
		for i := range b.sends {
			if p := &b.sends[i]; p.Peer != me && !b.eager(p.N) {
				b.sized(p.N)
				f(p)
			}
		}
	}
	long(func(p *Part) { b.learn(p.Peer, 0) })
	if b.eager(bytes) && bytes > 0 {
		b.sized(bytes)
		foldMessages(b, bytes)
	}
	for s := range turns + 2 {
		long(func(p *Part) { // push
			if s < pieces(p.N, size) {
				x := part(p.N, size, s)
				b.put(p.Peer, 0, s%window*size, in.plus(p.Off+x.off), x.n)
			}
		})
		if k := s - 1; k >= 0 && !b.eager(bytes) && k < pieces(bytes, size) { // combine
			b.sized(bytes)
			b.foldPiece(part(bytes, size, k), k%window*size, k+window < pieces(bytes, size))
		}
		if k := s - 2; k >= 0 { // collect
			long(func(p *Part) {
				if k+window < pieces(p.N, size) {
					b.take(p.Peer)
				}
			})
		}
	}
}

// foldMessages combines vectors that come in messages.
func foldMessages(b *builder, bytes int) {
	me := b.call.Rank
	for i := range b.recvs {
		if peer := b.recvs[i].Peer; peer != me {
			b.await(peer)
			b.landing[peer] = at(peer)
		}
	}
	b.foldLandings(portion{0, bytes}, 0, 0)
	for i := range b.recvs {
		if peer := b.recvs[i].Peer; peer != me {
			b.release(peer)
		}
	}
}

// foldPiece combines a piece that lies at landed in each peer's window.
func (b *builder) foldPiece(x portion, landed int, signal bool) {
	me := b.call.Rank
	for i := range b.recvs {
		if peer := b.recvs[i].Peer; peer != me {
			b.take(peer)
		}
	}
	b.foldLandings(x, landed, x.off)
	for i := range b.recvs {
		if peer := b.recvs[i].Peer; peer != me && signal {
			b.signal(peer)
		}
	}
}

// foldLandings combines a part of the vectors: landed is where it is behind the
// peers' landings, and mine behind the own vector.
func (b *builder) foldLandings(x portion, landed, mine int) {
	dst := b.dest().plus(x.off)
	from := func(i int) loc {
		peer := b.recvs[i].Peer
		if peer == b.call.Rank {
			return b.landing[peer].plus(mine)
		}
		return b.landing[peer].plus(landed)
	}
	have := from(0)
	if len(b.recvs) == 1 {
		b.copy(dst, have, x.n, false)
		return
	}
	for i := 1; i < len(b.recvs); i++ {
		b.reduce(dst, have, from(i), x.n, false)
		have = dst
	}
}
