// Package p2p moves tagged messages between the ranks of a job: through memory
// that both map when they share a host, else over RDMA queue pairs, one reliable
// connection for each pair of ranks. All messages of a pair go one way.
//
// # Parts
//
// An [Engine] is one rank's end of all its connections: engine.go. It has five parts, each of types of which one is
// within the next. A part reaches those before it and no other. The calls (calls.go) stand above all.
//
//	self     ranks     peer.go      this rank and its peers; a peer's credit, and what is due to it
//	         memory    memory.go    the region that peers write, send slots, keys of user memory
//	         ops       op.go        operations under way, and package match's queue of them
//	lines    rings     mapped.go    lines, slots and tickets in mapped memory; inbox.go
//	         failures  fail.go      failed peers, and the end of what waits for them
//	wire     pool      pool.go      what queue pairs receive into
//	         zones     zone.go      what peers on other hosts write longer messages into
//	         links     connect.go   queue pairs and paths, and posting to them; paths.go
//	         chores    chores.go    answers, credit and reads that are due, as far as there is room
//	traffic  inbound   arrivals.go  matching, messages that are kept, long receives; split.go
//	         outbound  send.go      messages that leave or wait in line; rendezvous.go, as inbound
//	waits    progress  progress.go  completions and lines are handed to their part
//	         waits     wait.go      the call that waits, and how an operation is given up
//
// No part has a lock: all of them are the one caller's, on whatever goroutine it is. Only atomics touch
// words that peers write (credit, the inbox, rings, tickets). The Engine is entered by its exported methods
// alone. Those of [peers.Traffic] are called by peers.Set in the midst of a call, for collectives too.
// A call that waits lets others in between two calls of condition.Ready, and nowhere else.
//
// # Protocol
//
// A message of at most peer.eager bytes travels in one send behind its
// header, into a receive that the peer has posted; a longer one is announced,
// and the receiver reads it straight out of the sender's memory:
//
//	short   sender --eager{tag, data}--> receiver
//	        synchronous: eagerSync{tag, id, data}, answered like a long one
//	long    sender --announce{tag, address, key, length}--> receiver
//	        sender <==================read================= receiver
//	        sender <------------finished{id}--------------- receiver
//
// Between hosts, over a device that needs the peer's process for all that it does, these are three ways, of
// several us each. So there the answer to the first message of middle length (up to [landMost]) grants the sender a zone,
// which is memory of the receiver. The next ones are written there, and their header is sent behind, in one post:
//
//	middle  sender --write{data}, landed{tag, offset, length}--> receiver
//	        synchronous: landedSync{id, tag, offset, length}, answered like a long one
//
// The sender copies the message before, so that it is done with it, and the receiver copies it out. zone.go has the
// account of the room. Where there is none, or no zone, the message is announced: it is a header in its place in either
// case, so messages keep their order.
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
// cuts nothing. A message of up to [stagedMost] bytes in ordinary memory is copied to registered memory of its
// ticket (128 KiB a rank, from the first such message on) and announced there. Where each rank has a CPU, a long message in ordinary memory is moved
// by both sides at once: split.go.
//
// Values read from shared memory are checked before use: a peer that
// scribbles spoils data and connections, and nothing else.
//
// # Dynamic connections
//
// Peers may have paths instead of queue pairs (package dc), and all messages come to one
// target: paths.go.
//
// # Memory
//
// One region from AllocMR holds control words and a pool of send slots; slots are
// touched when used. It grows with the number of ranks by a word for each, and receive slots
// with the connections, up to a bound, with shallower queues in larger jobs. [zonesMost] peers on other hosts get a zone of
// [zoneBytes], each when it first sends what would go there, and as many copies are kept of what was written into theirs. User memory is named by the caller's
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
