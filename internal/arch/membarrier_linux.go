package arch

import "golang.org/x/sys/unix"

// The commands of membarrier(2) that are used here (linux/membarrier.h).
const (
	membarrierQuery            = 0
	membarrierGlobalExpedited  = 1 << 1
	membarrierRegisterGlobal   = 1 << 2
	membarrierGetRegistrations = 1 << 9 // Linux 6.3
)

// RegisterMembarrier makes the threads of this process answer the [Membarrier]
// of every process, its own included, and tells whether they do. It may be
// called again; children do not inherit it.
//
// In a process with several threads the first call waits for the kernel's read
// side to pass everywhere: 7-10 ms on Linux 6.18 with 2 CPUs, uninterruptible.
// It belongs on a goroutine of its own and not on the start-up path.
//
// By the kernel's source it leaves CPUs out (kernel/sched/membarrier.c and sched.h, as
// they came with 5.4 and are in a current tree). A CPU answers by a flag of its run queue
// (membarrier_global_expedited). Registering sets the flag where a thread of the
// process runs at that moment (sync_runqueues_membarrier_state), and else the switch to
// another address space does (membarrier_switch_mm). A CPU that is idle when the process
// registers, and ran it last, keeps its address space, so that the switch back is none
// to another: the flag stays as it was, and Membarrier passes the CPU by, until it has
// run a thread of another process. Neither registering early nor running a thread of
// the process on that CPU changes this, and MEMBARRIER_CMD_GLOBAL sets no flag; a thread
// of any other process that goes to each CPU does. It was not seen in 120 processes on a
// busy machine; it may be why TestBellAgainstStore lost wake-ups once.
func RegisterMembarrier() bool {
	if !membarrierKnows(membarrierGlobalExpedited | membarrierRegisterGlobal) {
		return false
	}
	_, err := membarrier(membarrierRegisterGlobal)
	return err == nil
}

// MembarrierRegistered tells whether [RegisterMembarrier] has succeeded in this
// process before. It is one system call; false also where the kernel cannot say.
func MembarrierRegistered() bool {
	// An older kernel answers EINVAL.
	on, err := membarrier(membarrierGetRegistrations)
	return err == nil && on&membarrierRegisterGlobal != 0
}

// Membarrier returns after every running thread of every registered process
// has passed a full memory barrier since the call. The caller need not be
// registered. It costs 1-20 us, and the processors that it interrupts some.
func Membarrier() error {
	_, err := membarrier(membarrierGlobalExpedited)
	return err
}

func membarrierKnows(commands uintptr) bool {
	known, err := membarrier(membarrierQuery)
	return err == nil && known&commands == commands
}

func membarrier(command uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}
