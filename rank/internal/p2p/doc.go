// Package p2p moves tagged messages between the ranks of a job: through memory
// that both map when they share a host, else over RDMA queue pairs, one reliable
// connection for each pair of ranks. All messages of a pair go one way.
//
// # Types
//
// An [Engine] is one rank's end of all its connections. A peer is another rank, with the connection to it: its queue pair, the account
// of what was posted (package sendq), and the credit on both sides. The pool is what queue pairs receive into. The matching of messages with receives is package match.
//
// # Protocol
//
// A message of at most [Engine.Eager] bytes travels in one send behind its
// header, into a receive that the peer has posted; a longer one is announced,
// and the receiver reads it straight out of the sender's memory:
//
//	short   sender --eager{tag, data}--> receiver
//	        synchronous: eagerSync{tag, id, data}, answered like a long one
//	long    sender --announce{tag, address, key, length}--> receiver
//	        sender <==================read================= receiver
//	        sender <------------finished{id}--------------- receiver
//
// A message that cannot leave for lack of room waits in line with its sender, as an [Op]
// that refers to the caller's memory, and [Engine.Progress] sends it later: no
// start of an operation blocks or fails for that.
//
// When the receiver frees the communicator or leaves the job instead, it answers
// refused{id}, and the send fails.
//
// Every connection brings receive slots for all that it may have under way: a
// sender has as many credits as its peer has slots for eager messages and
// announcements, and at most [rendezvousMax] messages that want an answer
// outstanding, each of which has a slot for it. So no send finds none posted, unless its
// receiver has so many peers that they share fewer: pool.go says when, and what then. Credit comes back as an RDMA write of a
// running count into the sender's control word, which the sender looks at when
// it has no credit left. A message that nobody has asked for yet is copied out of
// its slot; when those of one peer exceed [unexpectedMax] bytes their credit is
// held back until they are received: a flood blocks its sender and not the
// receiver's memory.
//
// # Mapped peers
//
// Ranks that map each other's engine regions (Config.Peers) store messages there:
// first into the one inbox that a rank has, which all write, then, when a pair has
// become hot, into a ring of its own. At most 16 rings are given out, so memory
// does not grow with the square of ranks; what can be touched is below 384 KiB a
// rank. mapped.go draws the layout, inbox.go the claims, rendezvous.go how a long
// message is announced, read, or taken back. Credit, matching and the bounds on
// what is kept are those of queue pairs; an expired long send is taken back and
// cuts nothing. Where each rank has a CPU, a long message in ordinary memory is moved
// by both sides at once: share.go.
//
// Values read from shared memory are checked before use: a peer that
// scribbles spoils data and connections, and nothing else.
//
// # Dynamic connections
//
// With Config.Dynamic peers have paths instead of queue pairs (package dc), and all
// messages come to one target: dynamic.go.
//
// # Memory
//
// One region from AllocMR holds control words and a pool of send slots; slots are
// touched when used. It grows with the number of ranks by a word for each, and receive slots
// with the connections, up to a bound, with shallower queues in larger jobs. User memory is named by the caller's
// region, by the implicit on-demand region, or is registered for the call.
// Operations, unexpected messages and their buffers are recycled: no call
// allocates in steady state, whatever the depth reached before.
//
// # States
//
// A peer is up, then failed, for good, with the first error: a completion with
// an error, a dead peer, or a long send that its context ended, whose memory the
// peer must not read any more: the sender says "gone" and takes its queue pair to
// ERR, so that nothing is read of it afterwards.
//
// # What may block, what runs
//
// Send, Recv, Exchange, Probe, Mprobe, Wait, WaitFor and Drain wait with the
// engine's Waiter and make progress with all peers meanwhile; nothing else blocks. A failed
// peer ends all operations that concern it, whoever waits for what. There is no goroutine: messages advance
// when the rank is in some call, by [Engine.Progress]. An Engine serves one call
// at a time.
package p2p
