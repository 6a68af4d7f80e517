//go:build !linux

package arch

import "runtime"

// Yield lets another goroutine run: sched_yield is Linux's.
func Yield() { runtime.Gosched() }

// YieldSafe is Yield.
func YieldSafe() { runtime.Gosched() }
