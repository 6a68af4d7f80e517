// Package meeting is the exchange between ranks that no launcher has started: each has the same list of
// addresses, and meets the others at the first.
//
//	rank 1                      rank 0, at the first address          rank 2
//	  ├── nonce ──────────────────▶│◀───────────────────── nonce ──────┤
//	  │◀────────────────── nonce ──┤── nonce ─────────────────────────▶│
//	  ├── rank, list ─────────────▶│◀──────────────── rank, list ──────┤
//	  │◀──────── go, or an error ──┤── go, when all have come ────────▶│
//	  ├── card ───────────────────▶│◀────────────────────── card ──────┤   each AllGather
//	  │◀────────────── all cards ──┤── all cards ─────────────────────▶│
//
// Everything behind the nonces is frames (frame.go), each with a sum that only an end can make which knows the key
// and has seen both nonces: it proves the end, and nothing is changed or repeated on its way. Frames are not
// secret. Without a key the sum proves nothing, and the kernel is asked whose the other end is, where that is on this host.
//
// Members come in any order. One that comes before rank 0 tries again until it is there; rank 0 waits for all, refuses
// each that has another list, a rank that is taken or another key, and lets strangers go. Both end after
// Config.Timeout with an error that names who is missing.
//
// A meeting serves one call at a time. It has goroutines within calls only.
package meeting
