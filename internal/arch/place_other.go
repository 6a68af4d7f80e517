//go:build !linux

package arch

// Thread is the calling thread, where that has a number that MoveTo takes.
func Thread() int { return 0 }

// MoveTo moves a thread to one of its CPUs. Only Linux can.
func MoveTo(int, int) bool { return false }

// At tells whether the calling thread runs where MoveTo would move it, or nobody
// knows.
func At(int) bool { return true }
