//go:build !amd64 && !arm64

package arch

// Pause is where other architectures give a hint that they spin.
//
//go:noinline
func Pause() {}

// Ticks is where other architectures read a counter of the processor.
func Ticks() uint64 { return 0 }
