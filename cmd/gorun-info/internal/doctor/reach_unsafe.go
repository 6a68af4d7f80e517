package doctor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReachWord is the first argument by which a program that calls Here lets Reach
// do the work: it is then the child of a trial.
const ReachWord = "--read-memory-of"

// tryReach has a child read this process's memory. The child is to its parent
// what a rank is to another: not above it, so Yama and the like have their say,
// and allowed to by PR_SET_PTRACER, as ranks allow each other.
func tryReach(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Without Yama it fails, and is not needed.
	if unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_PTRACER, 0, 0, 0, 0) }()
	}
	secret := make([]byte, reachBytes)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	var pin runtime.Pinner
	pin.Pin(&secret[0])
	defer pin.Unpin()
	address := strconv.FormatUint(uint64(uintptr(unsafe.Pointer(&secret[0]))), 10)
	out, err := exec.CommandContext(ctx, self, ReachWord, strconv.Itoa(os.Getpid()), address).CombinedOutput()
	got := strings.TrimSpace(string(out))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && got != "":
		return errors.New(got)
	case err != nil:
		return err
	case got != hex.EncodeToString(secret):
		return fmt.Errorf("the child read %q", got)
	}
	return nil
}

const reachBytes = 16

// Reach is the child's part: it prints what is at the address of the process
// that args name. It gives the exit status.
func Reach(args []string, stdout, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintf(stderr, "found %q, expected a process and an address\n", args)
		return 2
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	address, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	var got [reachBytes]byte
	local := [1]unix.Iovec{{Base: &got[0]}}
	local[0].SetLen(len(got))
	n, err := unix.ProcessVMReadv(pid, local[:], []unix.RemoteIovec{{Base: uintptr(address), Len: len(got)}}, 0)
	if err != nil {
		fmt.Fprintln(stderr, os.NewSyscallError("process_vm_readv", err))
		return 1
	}
	fmt.Fprintln(stdout, hex.EncodeToString(got[:n]))
	return 0
}
