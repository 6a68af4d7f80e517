package testenv

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Refuse makes the kernel answer EPERM to system calls, by number, of this process and
// its children, as the filters of containers do.
func Refuse(calls ...uint32) error {
	// struct seccomp_data begins with the number of the system call.
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for _, call := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	return refuse(append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}))
}

// RefuseProcessVM makes the kernel answer EPERM to process_vm_readv and
// process_vm_writev of this process and its children, as Yama does and as
// containers do. It fails where it cannot, or where they go on working.
func RefuseProcessVM() error {
	if err := Refuse(unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV); err != nil {
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
	err := refuse([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_PRCTL},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // the lower half of the first argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.PR_SET_CHILD_SUBREAPER},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != unix.EPERM {
		return fmt.Errorf("prctl under a filter: %s, want %w", fmt.Sprint(err), unix.EPERM)
	}
	return nil
}

// refuse sets a filter of system calls.
func refuse(filter []unix.SockFilter) error {
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
