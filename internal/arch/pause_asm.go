//go:build amd64 || arm64

package arch

// Pause tells the processor that it is in a spin loop (PAUSE on amd64, YIELD on
// arm64): the other hyperthread gets the units, and leaving the loop is not
// punished by a memory-order violation. It takes 10-40 ns on amd64.
//
//go:noescape
func Pause()
