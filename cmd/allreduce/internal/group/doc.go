// Package group is a group of all-reduce programs: how they find each other over TCP,
// agree on what they do, and combine vectors as a world of package rank.
//
// # Who is who
//
// A participant takes part in each all-reduce: a daemon, for its clients, or a client that is not
// offloaded, for itself. An offloaded client has dealings with its daemon alone.
//
//	client ==memory== daemon ==all-reduce== daemon ==memory== client
//	                         ==         ==
//	                       client (not offloaded)
//
// # Reading order
//
// config.go is what all must agree on, hello.go the handshake, frame.go the wire. view.go decides,
// without I/O, when a group is complete. form.go is the group until that is so, and
// connect.go makes its connections, of which link.go is one. session.go is a member's part in the group that is complete.
//
// # How a group forms
//
// Nobody is told how large the group is. A member names others by their addresses, and tells
// those with which it is connected all that it knows: the participants' records, its own among them. The group is
// everyone whom a member names, or who named a member. It is complete when every name was
// resolved, every daemon has its clients, and all participants know of the same set. Records only
// ever add members, so when all have reported the same set, and nothing has changed for
// a while, the first in order starts that set, and no other set with one of its members can
// start. A participant that comes later is refused, with the reason.
//
// The start says who has which rank and where the first one listens: there all form a world by rank.Join. Ranks of
// a launcher have a world without that ([Launched]).
//
// # Operations
//
// The participants are a communicator, and each daemon with its clients is one. If these share memory, the clients'
// vectors lie in registered memory of the daemon, where it combines them in place; else the daemon gets and puts them
// through a window. A message without data says that a batch is in place, and another one that its results are.
// So a client that computes takes no part in what its daemon does meanwhile.
//
// # Blocking and ends
//
// Each connection of the forming has one goroutine, which reads, until the end of the run: by it members learn of
// each other's end, and why. Every wait ends with the group: by the last barrier, by the context, or by the first failure,
// which each member tells its neighbours before it ends, so that all name the member that is to blame.
package group
