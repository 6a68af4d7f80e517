// Package rma is one-sided communication: windows of memory of several ranks that
// each of them reads and writes without the others.
//
// # Design
//
// An [Engine] is a rank's part of all its windows: queue pairs, made when the
// first window needs them, one completion queue and a buffer. A [Window] has a
// remote for each member: the member's memory and control words, mapped where the
// device can (rdma.Mapper), else the names by which requests reach them.
//
//	access         mapped                      by requests
//	put, get       copy                        RDMA write, read
//	typed          pack, unpack                a request for each run of bytes
//	accumulate     lock word, kernel           lock word by atomics, read, kernel, write
//	of an element  the processor's atomic      the same
//	flush          nothing                     completions
//	locks          CPU atomics on words        RDMA atomics on the same words
//	post, complete a store and Notify          an RDMA write behind all others
//
// Memory that the program brings along (Create, Dynamic) goes by requests unless
// the device has allocated it; the words of a window are always the device's. The
// own memory is always at hand. Where no member is mapped, not even the own words
// are: then the device alone orders the atomics on them.
//
// Package rank goes to mapped memory by At, Settled, TryAccumulate and TryCompareAndSwap. They use the
// same locks and atomics, and where they would have to wait they do nothing.
//
// A target does nothing for accesses to it: what it has to say lies in its control
// words, which are drawn at Window, and in the table of a dynamic window.
//
// # Death
//
// A lock word names its holder, and a rank that waits for it takes it from the dead. A
// wait for a member's epoch ends with an error when the member has died. Requests
// end with the timeouts of their queue pairs. One that is refused breaks its queue pair for
// the windows that use it, and for no others: see target. Mapped memory outlives its owner, so a
// flush, and each accumulate, asks whether that lives.
//
// # Blocking and ownership
//
// Put, Get and Post block only for room in a send queue. Lock, Start and Wait end
// with their context. The accumulates wait for holders of the accumulate lock,
// which have it for the time of some copies, and end with their death, or with an
// error when one does not go on for some 10 s. A window
// belongs to one goroutine at a time; where calls of several take turns (Config.Turns), only what waits for
// calls of other ranks lets another one in: Lock, Start, Wait and flushes. All else keeps its turn, so
// that what it has in the engine stays. It starts none; memory of accesses is kept
// alive until they are complete.
package rma
