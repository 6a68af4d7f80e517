//go:build amd64 || arm64

package arch

// Pause tells the processor that it is in a spin loop (PAUSE on amd64, YIELD on
// arm64): the other hyperthread gets the units, and leaving the loop is not
// punished by a memory-order violation. It takes 10-40 ns on amd64.
//
//go:noescape
func Pause()

// Ticks reads the counter that the processor keeps (the TSC on amd64, CNTVCT on arm64). How fast it counts is not known, nor whether it
// is the same on all processors: that is so where the kernel takes it for its own clock. It waits for nothing that goes before.
//
//go:noescape
func Ticks() uint64
