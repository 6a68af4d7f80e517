// Package pmi is how the ranks of a job and their launcher find each other: the
// PMI-1 wire that MPICH, Hydra, Slurm and Flux speak, from both sides, and PMI-2,
// which MPICH and programs of Slurm's and Cray's libraries speak, from the
// launcher's.
//
// # Who uses it
//
// gorun for the ranks of a host ([Engine], [Store]), package rank to join a job
// ([FromEnviron], [Dial]), and any program that wants the wire of MPICH's, Slurm's
// or Flux's launchers alone.
//
// # Types
//
// [Env] says what a launcher left in the environment. [Message] is one line of
// the wire, of either version. [Engine] is a launcher's side for the ranks of one host: bytes of
// the ranks' sockets in, [Event]s out. [Store] completes a fence over all hosts
// of a job, internal/gossip between agents. [Client] is a rank's side.
//
// # States
//
// A rank, as its engine sees it:
//
//	                 init            barrier_in, gorun_allgather
//	fresh ------------------> up -------------------------------> in a fence
//	  | initack (PMI_PORT)    |  <-------------------------------     |
//	  v                       | finalize        FenceDone             |
//	 set size, rank           v                                       |
//	                       finalized --> gone <-- Disconnect ---------+
//
// A client of PMI-2 says so in its first line, and fullinit takes it up. Its
// later commands go through another codec (with their length before them), but
// they do the same: kvs-fence is barrier_in, so that ranks of both versions
// meet in one fence, over however many hosts, and read each other's keys. Only
// PMI-2 has attributes that the ranks of one host tell each other without a fence.
//
// A fence has an epoch, counted from 1 by each host for itself: all ranks of a
// job take part in every fence, so the counts agree. Once all ranks of the host
// are in, the engine emits [Fence] with this host's contribution; the owner
// passes it to the job's Store and hands the union back with FenceDone. By
// that, keys that ranks put become visible to get, on the own host too, so that a
// program behaves alike however its ranks are placed. When the last rank of a
// host of a larger job has finalized or gone, the engine takes part in one more
// fence to say so, and a host that still waits learns it instead of waiting for
// ever. So it does when one of several ranks has gone without finalize, since no
// fence can complete any more, whether or not the others ever come to one. After a spawn, and after what concerns published names, a rank waits for
// the owner's answer as it does in a fence: [Spawn], SpawnDone, [Name], NameDone.
// A spawned group is served by engines of its own, and so are the second MPI
// programs of ranks that run several, one after the other.
//
// # Memory
//
// The engine copies what it keeps out of the bytes that it is given, and gives
// events away: it never changes an event's bytes again, and several replies may
// share them, so the owner must not change them either. It buffers at most
// [LineMax] bytes of an unfinished line, [FrameMax] of a command of PMI-2 and
// [CardMax] bytes of a card for each rank, and refuses puts that exceed [StoreMax] in all.
//
// # What may block
//
// Nothing in the engine: it has no I/O, no goroutine, no lock, and belongs to
// one event loop. The owner should not read from a rank while that rank's
// replies wait to be written, which bounds them. Client calls block until the
// server has answered, or their context ends, or the server is gone; after an
// unfinished call the client is of no more use except for Abort and Close.
// Store.Fence blocks until all hosts have contributed or its context ends.
package pmi
