//go:build !linux

package arch

// MoveTo moves the calling thread to one of its CPUs. Only Linux can.
func MoveTo(int) bool { return false }
