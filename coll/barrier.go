package coll

// Dissemination barrier (Hensgen, Finkel, Manber 1988): in round k every rank
// signals the rank 2^k above and waits for the one 2^k below. After round k a
// rank knows of 2^(k+1) ranks that they have come.
//
// Steps: ceil(log2 n) rounds. Bytes: none, one signal a round and rank.
func barrierDissemination(b *builder) {
	n, me := b.call.Size, b.call.Rank
	for dist := 1; dist < n; dist *= 2 {
		b.signal((me + dist) % n)
		b.take((me - dist + n) % n)
	}
}

// Direct barrier: every rank signals all others and waits for all signals. Where
// ranks share CPUs a rank that is switched to finds all signals but those of the
// ranks that have not run since, and need not be switched to for each round.
//
// Steps: 1. Bytes: none, n-1 signals a rank.
func barrierDirect(b *builder) {
	if b.call.Size > 1 {
		b.meet()
	}
}

// Central barrier: all signal rank 0, and it them. Where ranks share CPUs it takes as
// many switches as the direct one, or one more, and rank 0 leaves first: what it is the
// root of next is on its way to the others before they are through, and none of them
// gives its CPU away again to wait for it.
//
// Steps: 2. Bytes: none, a signal a rank, n-1 of rank 0.
func barrierCentral(b *builder) {
	n, me := b.call.Size, b.call.Rank
	if me != 0 {
		b.signal(0)
		b.take(0)
		return
	}
	for r := 1; r < n; r++ {
		b.take(r)
	}
	for r := 1; r < n; r++ {
		b.signal(r)
	}
}

// Farewell: every member signals every other one directly, as the last thing it
// ever writes to it. Who has all signals knows that no write to its memory is
// on its way: a queue pair's writes arrive in order.
//
// Steps: 1. Bytes: none, n-1 signals a rank.
func farewellDirect(b *builder) {
	n, me := b.call.Size, b.call.Rank
	for i := 1; i < n; i++ {
		b.signal((me + i) % n)
	}
	for i := 1; i < n; i++ {
		b.await((me - i + n) % n) // and not give back: that would be a write
	}
}
