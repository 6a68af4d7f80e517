package testenv

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Call is a system call, by number, or those of one number whose argument Arg is Value in the
// bits of Mask.
type Call struct {
	Number      uint32
	Arg         uint32 // counted from 0
	Mask, Value uint32 // of the argument's lower half; Mask 0: whatever its arguments are
}

// Adopting and Traced are what prctl is called for to become a subreaper, and for other processes to reach this one's memory.
var (
	Adopting = Call{unix.SYS_PRCTL, 0, ^uint32(0), unix.PR_SET_CHILD_SUBREAPER}
	Traced   = Call{unix.SYS_PRCTL, 0, ^uint32(0), unix.PR_SET_PTRACER}
)

// Refuse makes the kernel answer an error to system calls of this process and its children, as the filters of
// containers do (EPERM) and kernels that have no such call (ENOSYS). With errno 0 a call kills its process by SIGSYS.
func Refuse(errno unix.Errno, calls ...Call) error {
	var filter []unix.SockFilter
	for _, c := range calls {
		test := []unix.SockFilter{{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: c.Number}}
		if c.Mask != 0 {
			test[0].Jf = 4
			test = append(test, loadWord(16+8*c.Arg), // struct seccomp_data: number, architecture, address, arguments of 8 bytes
				unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.Mask},
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: c.Value})
		}
		filter = append(append(append(filter, loadWord(0)), test...), answer(errno))
	}
	return refuse(filter)
}

// firstOf5 is the first of the system calls that came after Linux 4.20: their numbers are one on all architectures.
const firstOf5 = unix.SYS_PIDFD_SEND_SIGNAL

// RefuseNew makes the kernel answer an error to all system calls that came with Linux 5.1 and later.
func RefuseNew(errno unix.Errno) error {
	return refuse([]unix.SockFilter{loadWord(0), {Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: firstOf5}, answer(errno)})
}

func loadWord(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func answer(errno unix.Errno) unix.SockFilter {
	if errno == 0 {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS}
	}
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// RefuseProcessVM makes the kernel answer EPERM to process_vm_readv and
// process_vm_writev of this process and its children, as Yama does and as
// containers do. It fails where it cannot, or where they go on working.
func RefuseProcessVM() error {
	if err := Refuse(unix.EPERM, Call{Number: unix.SYS_PROCESS_VM_READV}, Call{Number: unix.SYS_PROCESS_VM_WRITEV}); err != nil {
		return err
	}
	var one [2]byte
	n, err := unix.ProcessVMReadv(unix.Getpid(), []unix.Iovec{{Base: &one[0], Len: 1}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&one[1])), Len: 1}}, 0)
	if err != unix.EPERM {
		return fmt.Errorf("process_vm_readv under a filter: %d bytes and %s, want %w", n, fmt.Sprint(err), unix.EPERM)
	}
	return nil
}

// RefuseSubreaper makes the kernel answer EPERM to prctl(PR_SET_CHILD_SUBREAPER) of this process and its
// children, as filters of containers do.
func RefuseSubreaper() error {
	if err := Refuse(unix.EPERM, Adopting); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != unix.EPERM {
		return fmt.Errorf("prctl under a filter: %s, want %w", fmt.Sprint(err), unix.EPERM)
	}
	return nil
}

// refuse sets a filter of system calls, behind which all others are allowed.
func refuse(filter []unix.SockFilter) error {
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	// The thread without new privileges is the one that may set a filter.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
