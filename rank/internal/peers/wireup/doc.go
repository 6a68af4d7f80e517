// Package wireup is how the ranks of a job find each other: the card that each
// rank shows, the all-gather that carries the cards, and the connection of queue
// pairs by what they say.
//
// A [Card] is written in msgpack. An [Exchange] carries cards: the client of a
// PMI server, a [Hub] between the goroutines of one process, or [Alone]. The
// cards of an all-gather belong to the caller; nothing else is kept.
//
// AllGather and Barrier block until all ranks have called them, their context
// ends, or the exchange breaks.
package wireup
