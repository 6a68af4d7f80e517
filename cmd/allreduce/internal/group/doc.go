// Package group is a group of all-reduce programs: how they find each other over TCP,
// agree on what they do, and combine vectors.
//
// # Who is who
//
// A participant runs the algorithm: a daemon, for its clients, or a client that is not
// offloaded, for itself. Each pair of participants has a connection. An offloaded client
// has one, to its daemon.
//
//	client --vector--> daemon ==algorithm== daemon <--vector-- client
//	       <--result--        ==         ==        --result-->
//	                        client (not offloaded)
//
// # Reading order
//
// config.go is what all must agree on, frame.go the wire, hello.go the handshake. view.go
// decides, without I/O, when a group is complete. form.go is the group until that is so,
// and connect.go makes its connections. link.go is one of them, mailbox.go holds what has
// come and is not yet used. algorithms.go combines vectors among participants; serve.go is a daemon's work,
// session.go a client's.
//
// # How a group forms
//
// Nobody is told how large the group is. A participant names others by their addresses,
// and each tells all others what it knows: its record. The group is everyone
// whom a member names, or who named a member. It is complete when every name was resolved,
// every pair is connected, and every daemon has its clients. Records only ever add
// members, so when all members have reported the same set, and nothing has changed for a
// while, the first in order starts that set, and no other set with one of its members can
// start. A participant that comes later is refused, with the reason.
//
// # Operations
//
// The configuration fixes the whole sequence of operations (config.go), so that a frame
// needs no more than its operation's number and a step. Operations of a participant run
// at most depth at a time, in order, so a peer is at most twice that ahead, and what
// goes beyond is a forgery. Vectors are combined in an order that the algorithm fixes:
// every member gets the same bits.
//
// # Blocking and ends
//
// Each connection has one goroutine, which reads. Writes are done by those who have
// something to write, and return when the kernel has the bytes. A participant's reader
// never blocks, hence no cycle of full sockets; a reader of a client's vectors may, which
// is what holds the client up. Every wait ends with the group: by the last barrier,
// by the context, or by the first failure, which each member tells its neighbours before
// it ends, so that all name the member that is to blame.
package group
