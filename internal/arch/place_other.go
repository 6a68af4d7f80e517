//go:build !linux

package arch

// Thread is the calling thread, where that has a number that MoveTo takes.
func Thread() int { return 0 }

// MoveTo moves a thread to one of its CPUs. Only Linux can.
func MoveTo(int, int) bool { return false }

// At tells whether the calling thread runs where MoveTo would move it, or nobody
// knows.
func At(int) bool { return true }

// CPUs are the numbers of the CPUs that the calling thread may use, nil when nobody knows.
func CPUs() []int { return nil }

// Pin has the calling thread run on one CPU only. Only Linux can.
func Pin(int) bool { return false }
