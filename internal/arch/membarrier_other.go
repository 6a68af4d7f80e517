//go:build !linux

package arch

import "errors"

// RegisterMembarrier makes the threads of this process answer [Membarrier].
// Only Linux can.
func RegisterMembarrier() bool { return false }

// MembarrierRegistered tells whether RegisterMembarrier has succeeded.
func MembarrierRegistered() bool { return false }

// Membarrier is a full barrier on every running thread of every registered
// process.
func Membarrier() error { return errors.ErrUnsupported }
