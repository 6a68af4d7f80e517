//go:build !amd64

package arch

import "runtime"

// Callers fills pcs with the program counters of its caller, of that one's caller and so on, and tells how many there are.
func Callers(pcs []uintptr) int { return runtime.Callers(2, pcs) }
