// Package coll is MPI's collectives over RDMA writes, and the exchange of parts
// that those with counts, neighbours and two groups are made of. [Team.Run] makes
// a call of [Args]; a [Table] selects its algorithm.
//
// Read operations.go first, the table of all collectives, algorithms and their costs;
// then plan.go, builder.go with one algorithm (barrier.go is the shortest), machine.go,
// and run.go. docs/collectives.md is the table for users.
//
// # Who uses it
//
// Package rank, for every collective call. a2a and gorun-bench read its names of
// algorithms and its [Table], and other programs may do the same; a program calls
// collectives through a rank.Comm, since the reductions of [Args] are those of
// internal/kernel.
//
// # Plans
//
// A collective is compiled into a plan: a list of steps over operands (send,
// receive, scratch, the slot of a peer's message) and offsets. A plan is a pure
// function of the [Call] and holds no address, so it is cached and is the same
// in every call of its kind. A call binds the operands, and a machine steps
// through the plan without ever blocking; the caller of the machine decides whether the
// call is blocking. Tests drive the same machine over a fabric of plain memory,
// in any interleaving.
//
// # Channels
//
// Between any two members of a [Team] there is one channel in each direction: a
// ring of slots in the receiver's control region, which only the sender writes.
// The k-th message of a channel goes into slot k modulo the ring, payload first
// and then the header word, so that a rank that sees the header sees the payload:
// writes of one queue pair become visible in order. The eight bytes of a header
// are one store, or at least come in the order of their addresses: the sequence last.
//
//	header  63.....48 47...32 31.........0
//	        sequence  credit  fingerprint
//
// The k-th message matches the receiver's k-th wait for that peer; the counters
// run on over calls. A slot is reused when its receiver has given it back: the
// count of messages taken travels as the credit in the header of whatever goes
// the other way, or in a write of its own when half a ring is owed. The
// fingerprint is that of the call (kind, sizes, root, operation), so two members
// that call different things find out at the first message. Members that would wait
// for each other in a circle, as only calls do that do not match, find out too.
//
// Small blocks travel in the slots. For larger ones the receiver sends a
// descriptor {address, key, length} of the memory of this very call, the sender
// writes there and then sends an empty message. A member's memory is written only
// with its descriptor for this call.
//
// Or the owner of the data sends the descriptor, and each member that needs the data
// reads it (see pull.go): all readers at once, each into its own cache. The owner
// waits until each reader has sent a message that it is done.
//
// If peers' memory is mapped, messages are stores, data is copied into exposed
// registered memory, and a long reduction whose operands are all
// registered reads the inputs of all members where they are.
//
// Members on several hosts of which some share one can go by two levels (see hosts.go): one
// member of a host talks with the other hosts. The table has rules of its own for them, which
// do not hold where a reduction would have other bits than on one host, or where one member
// would have to hold more than 4 MiB. A long all-reduce goes along the chain of hosts in pieces,
// of which each member carries its portion (see hostchain.go).
//
// A blocking call that repeats one before it, and that needs messages to mapped
// members only, can be made by its [Short], which keeps what Run has looked up.
//
// # Daemon
//
// An executor is data: what a started call needs beside the plan that follows from it (its
// arguments, keys of its operands, the counters of the channels) can be handed to a daemon of
// the host, which steps it in another process while the program computes. offload.go is the
// rank's side, daemon.go and deputy.go the daemon's, desk.go what lies between them. journal.go is
// how a rank goes on with a call when the daemon's process has ended in it.
//
// # Determinism
//
// The order in which a reduction combines depends on the call, the number of ranks
// and the table only, never on which member is first, which members share a host, which
// memory is registered or mapped, or which operand is in place: the same bits in all members
// and in every run.
//
// # Ownership, states, blocking
//
// Operands belong to the collective from the call to its return; when it
// returns without an error everything has been received and every write from
// them is complete. After an error peers may still be writing to registered
// memory that was in it, until the [Mesh] is closed. The control region and the scratch
// belong to the team; of teams that were freed the mesh keeps two control regions for those to come.
//
// A team is open, then broken (an error completion, a dead peer, an expired
// context, calls that do not match: every later call returns the same *[Error],
// and the other members are told) or closed. A broken team keeps the memory
// that late writes of peers may still reach, until its [Mesh] is closed.
//
// Only waiting for a peer blocks, in [wait.Waiter.Wait]; it ends with the
// context, and in bounded time when a peer dies. A team runs one call at a
// time, and all members make the same calls in the same order. [Team.Start]
// does not wait: what it started runs in that order too, moved on by
// [Team.Progress] and by the team's later calls. [Team.Defer] leaves even the first step to
// those, for a thread beside the program's. Teams of one
// mesh may be used at the same time by several goroutines once all its peers are connected;
// before, by one at a time. The package starts no goroutines.
package coll
