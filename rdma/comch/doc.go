// Package comch is a message channel between two programs, as between a host
// and its DPU: messages of up to [MaxMessage] bytes in both directions, in
// order, none lost, none but the peer able to read or to forge one.
//
// # Who does what
//
// One end listens ([Listen], [ListenTLS]) and accepts any number of clients; the
// others dial it ([Dial], [DialTLS]). Each pair has a [Conn] of its own:
// clients know nothing of each other. Read config.go and conn.go first.
//
//	          Conn                     send, receive, wait, drain; the same for both
//	ringConn         streamConn
//	ring.go          frames.go         bytes in, bytes out: no I/O, fuzzed
//	memfd, bells     TLS 1.3 over TCP
//	meeting_linux.go, hello.go         identity.go
//
// On one host each direction is a ring of slots in a memfd. The listener
// makes the memfd when a client has shown who it is, and passes it over a Unix socket
// (SCM_RIGHTS). Between hosts messages travel in TLS 1.3 records over TCP, as many
// in a record as have come together while the last one was written.
//
// # States
//
//	Dial, Accept --> OPEN --CloseSend--> HALF (still receives) --peer's end--> both ended
//	                   |                                                        |
//	                   +---- peer dies, forges, Close -----> BROKEN         Drain, Close
//
// CloseSend sends an end mark behind the messages. Recv returns io.EOF when it
// takes the peer's. Drain returns when the peer has taken everything, the mark included.
// A peer whose process ends, or that closes before its end mark, is [ErrPeerGone]; what
// it had sent before can still be received. Every error of a Conn but those of a
// context and of a bad argument is final.
//
// # Memory
//
// Send copies the caller's bytes before it returns, and Recv copies into the
// caller's buffer: no slice of a Conn's memory is ever given out, because the peer
// could change it. A ring has Queue slots of Buffer bytes each, made once; a message takes
// as many slots as it fills. A sender may use a slot again when the receiver
// has said so: that is its credit, a count in the ring that only the receiver writes. Without
// credit a sender waits; nothing is dropped. A stream gathers at most as many bytes as a
// ring would hold, and then waits for TCP, which waits for the receiver.
//
// The memfd and the socket belong to the Conn until Close, which waits for the calls
// under way. Both lie in no directory, and the kernel takes them back from a process that
// dies in any way.
//
// # Who blocks
//
// Send and Recv block until they can go on or their context ends; a
// [Conn.Wait] waits for either. One goroutine may send while another receives; several senders,
// or receivers, take turns. On one host a waiting end polls for some
// microseconds, yields for a millisecond, then sleeps on a futex in the memfd that
// its peer wakes (internal/wait, internal/shm); a stream's waits on Go channels.
// Close unblocks all calls.
//
// Goroutines: a Listener has one that accepts and one for each handshake, at most
// 64 and for at most 10 s each. A ringConn has one, which waits for the end of the
// Unix socket: by it the death of a peer is noticed at once. A streamConn has a
// reader and a writer. Close waits for all of them.
//
// # Trust
//
// On one host the kernel says whose the other end is (SO_PEERCRED), on
// both sides: only processes of the same user are let in. With a key, both
// sides also prove that they know it, before the memfd is given away. Between hosts a
// key is needed; both sides then derive the same two TLS identities from it and accept
// nothing else (identity.go says why that is sound).
//
// A peer that was let in may still be mad. It can fill its half of the memfd
// with anything at any time. Each word that comes from it is read once, and then held
// against what it may be; offsets and lengths are computed from the reader's own
// counters alone. So a peer can send wrong messages, be late, or end the channel
// ([ErrForged]). It cannot make this process read or write beyond a ring, loop, or wait
// beyond its context.
package comch
