//go:build !linux

package topo

// A Hold is a CPU that a process has taken for a thread of its own.
type Hold struct{}

// TakeCPU takes a CPU. Only on Linux does it know of other Holds.
func TakeCPU(int) (h Hold, taken bool) { return Hold{}, true }

// Release gives the CPU back.
func (Hold) Release() {}
