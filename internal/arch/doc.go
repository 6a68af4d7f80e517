// Package arch holds the few machine instructions and system calls that the
// hot path needs and that Go does not offer: a pause hint for spinning, a
// release store, a yield that does not tell the scheduler, the processor's
// counter, and the barrier that lets a sleeper do the ordering work for those that
// wake it.
//
// # Design
//
// There are no types and no state: every function works on the caller's memory
// or on the calling thread, so nothing has an owner and nothing dies.
//
//   - Release stores. Go's atomic store is an XCHG on amd64, a full barrier that
//     waits for the store buffer to drain: more than 100 ns behind a contended
//     line. [StoreRelease32] and [StoreRelease64] are a MOV there and STLR on
//     arm64: all that the caller loaded or stored before is visible to a reader
//     that gets the value with a sync/atomic load. On amd64 they give no order
//     between this store and a LATER load; a caller that needs it uses
//     sync/atomic, or the other side calls [Membarrier].
//   - Yields. [Yield] keeps the goroutine's processor and costs one system call;
//     as the Go runtime cannot step in, a loop needs a [YieldSafe] now and then.
//   - Barrier. [Membarrier] makes every running thread of every registered
//     process pass a full barrier. A sleeper that stores its flag, calls it and
//     looks once more has the same guarantee as if each of its wakers had a full
//     barrier between their store and their look at the flag.
//
// In builds with the race detector, and on other architectures, the release
// stores are sync/atomic stores: slower, stronger, and visible to the detector.
// Each assembly routine stands beside the Go function that says what it does,
// and the tests hold one to the other.
//
// Nothing here blocks, except [RegisterMembarrier]: see there.
package arch

// CacheLine is the size of what two processors pass to each other, in bytes.
// Data that different ranks write lies on different lines.
const CacheLine = 64
