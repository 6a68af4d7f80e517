package arch

import "syscall"

// Yield lets another thread of this CPU run, if one wants to (sched_yield). The
// Go scheduler does not hear of it: the goroutine keeps its processor, and a
// garbage collection that asks it to stop waits for its next safe point.
//
//go:nosplit
func Yield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// YieldSafe is Yield through the scheduler's books: while the thread is away,
// the runtime may stop the world or give the processor to another goroutine.
func YieldSafe() { syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
