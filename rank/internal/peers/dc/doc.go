// Package dc gives a rank what looks like a reliable connection with each of its peers, a
// [Path], over a few dynamically connected initiators that all paths share: queue pairs then
// take as much memory with a thousand peers as with ten.
//
//	messages ──┐  Path to rank 1 ┐             ┌ initiator ──▶ target of rank 7
//	           ├  Path to rank 7 ┼─▶ Pool ─────┤ initiator ──▶ target of rank 1
//	windows  ──┘  ...            ┘  (a line)   └ ...
//
// # Initiators
//
// An initiator keeps the order of its requests, and changes its target when all before are
// acknowledged. So it has the requests of one path at a time, and a path is on one
// initiator at most: its requests are executed in their order, as on a connection, which a
// [rdma.DCIPool] does not promise, and what goes wrong concerns no other path. A path that finds
// no initiator free waits in line; the holder of one gives it up when its requests are
// complete, and takes no new ones on while others wait.
//
//	idle --first request--> in line --one is free--> on an initiator --all complete--> idle
//	on an initiator --the receiver has no receive (RNR)--> parked --its time is over--> in line
//	any --error, ERR--> failed: requests complete with the status, then with WR_FLUSH_ERR
//
// A receiver without receives would hold an initiator up for as long as it computes. So
// initiators retry for some milliseconds only; the path is then parked with all its requests,
// none of which was executed, and the initiator is made anew for others.
//
// # Memory
//
// Requests are copied into records of the pool, inline data too, and recycled: there are as
// many as were ever outstanding at once. SGL memory is the caller's until completion, as
// ever. A path is a hundred bytes or so; address handles are one for each peer.
//
// # Completions
//
// Each user has a [CQ], which gives the completions of its queue pairs and of its paths: of
// requests that ask for one, and of all that fail. Nothing moves but in calls: of Poll,
// PostSend and [Pool.Advance]. All methods may be called from any goroutine.
//
// # What a path is not
//
// The peer's target is one for all: ERR here does not keep the peer from reading and
// writing, as on a queue pair's other half. A rank that takes memory back must see to that itself.
package dc
