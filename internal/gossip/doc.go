// Package gossip is the PMI store across hosts: one [Node] for each agent of a
// job, joined with memberlist.
//
// # Types
//
// A [Node] is one host's member of the job and its pmi.Store. Inside, fences is
// the protocol without I/O, message its codec, and branch a connection of the tree, which
// carries the messages. No other package imports memberlist.
//
// # What gossip does and what it does not
//
// Membership, suspicion, and a second way of repair, are memberlist's. Fences go over connections
// that last, one for each edge of the tree. That a host is lost its owner says
// ([Node.Lost]): memberlist takes hosts for dead that have too little CPU. A fence is counted,
// never inferred from convergence. The hosts form a tree by index with
// Config.Fanout children each, host 0 its root, for 5 hosts and fanout 2:
//
//	     0          up:   the contributions of a whole subtree, to the parent,
//	   /   \              once they are complete
//	  1     2       down: all others, to each child, once they are all there
//	 / \
//	3   4
//
// That is 2 (hosts - 1) messages, and 2 log(hosts) message times. A contribution
// is keyed (epoch, host, part), so that doubled and reordered messages do no
// harm. A host that waits asks its parent from time to time: the parent sends
// what it has complete once more, or asks for the subtree that it misses. So any
// loss is made good by the node that waits for it. Push-pulls carry what is in flight
// besides.
//
// memberlist has each host know each other, which is hosts squared in work. So hosts are members of circles
// of 32 at most, those beside each other by index, and meet the first of theirs. No host needs to
// know more addresses than those of its circle and of its neighbours in the tree.
//
// # States of a fence, at one host
//
//	collecting --(subtree complete)--> sent up --(all there)--> complete --> freed
//	     \------------(a host is lost)-----\------> failed
//
// It is freed when the caller has the result and every child is known to be
// complete: children say with each message up to which epoch they are. Epochs
// are counted from 1; 0 is the fence of Join, which exchanges the hosts' names.
//
// # Memory
//
// Fence keeps the contribution it is given, and what arrives, until the fence is
// freed; the result shares that memory and belongs to the caller, read only.
//
// # What may block, and what ends what
//
// Join and Fence block until their context ends. Begin is a fence whose end comes as a call: see waits.go. A host that the owner declares lost
// with [Node.Lost] ends all fences that are not complete, with its name, and all later
// ones. One that memberlist takes for dead ([Node.Suspects]) ends none. Close ends everything and
// waits for its goroutines: two for each branch.
// Those of memberlist end by themselves: a probe of another host that is under
// way takes up to 8 seconds where the machine is busy (AwarenessMaxMultiplier).
//
// # Security
//
// memberlist's traffic is encrypted with AES-256 under Config.Key, and that of the tree by TLS 1.3, whose
// ends prove by certificates derived from Config.Key that they hold it (internal/tlskey). A process that
// does not can neither join nor be joined. It can hold 256 connections open, for which
// nothing is kept but 56 bytes each: see prover.
package gossip
