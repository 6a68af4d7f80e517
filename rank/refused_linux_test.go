package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

const (
	// refusedVariable says to which ranks the kernel refuses others' memory.
	refusedVariable = "RANK_TEST_REFUSED"
	// refusedDevice is the device that is named, none if empty.
	refusedDevice = "RANK_TEST_REFUSED_DEVICE"
)

func init() { programs["refused"] = refused }

// refused is a rank to which the kernel may refuse other processes' memory. It does all
// that moves long data in ordinary memory.
func refused() {
	who := os.Getenv(refusedVariable)
	switch r := os.Getenv("PMI_RANK"); {
	case who == "all", who == "first" && r == "0", who == "last" && r == "2":
		orExit(testenv.RefuseProcessVM())
	case who == "memfd":
		orExit(testenv.Refuse(unix.EPERM, testenv.Call{Number: unix.SYS_MEMFD_CREATE}))
	case who == "foreigner" && r == "2":
		apart()
	}
	cfg := rank.Config{}
	if d := os.Getenv(refusedDevice); d != "" {
		cfg.Devices = []string{d}
	}
	ctx := context.Background()
	w, err := rank.Init(ctx, cfg)
	orExit(err)
	c := w.Comm()
	for round := range 3 {
		orExit(longMessages(ctx, c, round))
		orExit(longCollectives(ctx, c, round))
		orExit(longWindow(ctx, c, round))
	}
	orExit(windows(ctx, c))
	if who == "all" {
		orExit(suite(dose{[]layout{word, gaps}, []numeric{numerics[5]}, []int{large}, false}, 5)(ctx, c))
	}
	orExit(w.Finalize(ctx))
}

// apart runs this rank once more in a user namespace of its own, and ends with it. The
// kernel lets a process there read its own memory, and not that of the other ranks.
func apart() {
	exe, err := os.Executable()
	orExit(err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), refusedVariable+"=namespace")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "pmi"), os.NewFile(4, "segment")}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL}
	orExit(cmd.Run())
	os.Exit(0)
}

// apartWorks tells whether there are user namespaces.
func apartWorks() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return cmd.Run()
}

// long is the length of messages that no transport copies through its slots.
const long = 1<<20 + 24

// stamped is memory whose every word says whose it is.
func stamped(n, by int) []int64 {
	b := make([]int64, n)
	for i := range b {
		b[i] = int64(by)<<32 | int64(i)
	}
	return b
}

// checkStamped fails unless b is what stamped(len(b), by) gives.
func checkStamped(what string, b []int64, by int) error {
	for i, v := range b {
		if want := int64(by)<<32 | int64(i); v != want {
			return fmt.Errorf("%s: word %d is %#x, want %#x", what, i, v, want)
		}
	}
	return nil
}

func longMessages(ctx context.Context, c *rank.Comm, round int) error {
	n, me, size := long/8, c.Rank(), c.Size()
	mine := stamped(n, 100*round+me)
	for step := range size {
		to, from := (me+step)%size, (me+size-step)%size
		got := make([]int64, n)
		req, err := rank.Irecv(c, got, from, step)
		if err != nil {
			return err
		}
		if err := errors.Join(rank.Send(ctx, c, mine, to, step), rank.WaitAll(ctx, []rank.Request{req}, nil)); err != nil {
			return err
		}
		if err := checkStamped(fmt.Sprintf("message from %d", from), got, 100*round+from); err != nil {
			return err
		}
	}
	return nil
}

func longCollectives(ctx context.Context, c *rank.Comm, round int) error {
	n, me, size := long/8, c.Rank(), c.Size()
	mine, all := stamped(n, 100*round+me), make([]int64, n*size)
	if err := rank.Allgather(ctx, c, mine, all); err != nil {
		return err
	}
	for r := range size {
		if err := checkStamped(fmt.Sprintf("all-gather, rank %d", r), all[n*r:n*(r+1)], 100*round+r); err != nil {
			return err
		}
	}
	to := make([]int64, 0, n*size)
	for r := range size {
		to = append(to, stamped(n, 1000*(round+1)+10*me+r)...)
	}
	if err := rank.Alltoall(ctx, c, to, all); err != nil {
		return err
	}
	for r := range size {
		if err := checkStamped(fmt.Sprintf("all-to-all, rank %d", r), all[n*r:n*(r+1)], 1000*(round+1)+10*r+me); err != nil {
			return err
		}
	}
	sum := make([]int64, n)
	for i := range mine {
		mine[i] = int64(i*(me+1) + round)
	}
	if err := rank.Allreduce(ctx, c, mine, sum, rank.Sum); err != nil {
		return err
	}
	for i, v := range sum {
		if want := int64(i*size*(size+1)/2 + round*size); v != want {
			return fmt.Errorf("all-reduce: word %d is %d, want %d", i, v, want)
		}
	}
	root := round % size
	buf := make([]int64, n)
	if me == root {
		buf = stamped(n, 7+round)
	}
	if err := rank.Bcast(ctx, c, buf, root); err != nil {
		return err
	}
	return checkStamped("broadcast", buf, 7+round)
}

// longWindow puts into one neighbour's ordinary memory and gets from the other's.
func longWindow(ctx context.Context, c *rank.Comm, round int) error {
	n, me, size := long/8, c.Rank(), c.Size()
	mem := make([]int64, 2*n)
	copy(mem[n:], stamped(n, 100*round+me))
	w, err := rank.WinCreate(ctx, c, mem)
	if err != nil {
		return err
	}
	right, left, got := (me+1)%size, (me+size-1)%size, make([]int64, n)
	if err := errors.Join(w.Fence(ctx, 0), w.Put(stamped(n, 100*round+me), right, 0), w.Get(got, left, n), w.Fence(ctx, 0)); err != nil {
		return err
	}
	return errors.Join(checkStamped("put", mem[:n], 100*round+left), checkStamped("get", got, 100*round+left), w.Free(ctx))
}

// Where the kernel refuses process_vm_readv and process_vm_writev, long data in ordinary
// memory goes another way: a seccomp filter on all ranks or on one, or a rank in a user
// namespace of its own, which may be read and may not read. Where it refuses memfd_create,
// the ranks of another launcher share no memory at all.
func TestRanksWithoutProcessVM(t *testing.T) {
	testenv.NoLeaks(t)
	namespaces := apartWorks()
	for _, tt := range []struct {
		who, device string
		hosts       []int
		foreign     bool
		long        bool // left to make test-long-rank
	}{
		{"all", "", []int{3}, false, false},
		{"all", "soft0", []int{3}, false, true},
		{"all", "", []int{3}, true, true},
		{"all", "", []int{2, 1}, false, true},
		{"memfd", "", []int{3}, true, false},
		{"first", "", []int{3}, false, false},
		{"last", "", []int{3}, false, true},
		{"last", "soft0", []int{3}, false, true},
		{"foreigner", "", []int{3}, false, false},
		{"foreigner", "soft0", []int{3}, false, true},
	} {
		if tt.long && testing.Short() {
			continue
		}
		t.Run(fmt.Sprintf("%s,device=%s,hosts=%d,foreign=%t", tt.who, tt.device, len(tt.hosts), tt.foreign), func(t *testing.T) {
			if tt.who == "foreigner" && namespaces != nil {
				testenv.Unsupported(t, "no user namespaces: "+namespaces.Error())
			}
			j := &job{program: "refused", hosts: tt.hosts, foreign: tt.foreign,
				// The race detector of a process knows nothing of an order that came
				// about through another process.
				env: []string{"GORACE=report_bugs=0", refusedVariable + "=" + tt.who, refusedDevice + "=" + tt.device}}
			j.start(t)
			j.done(t)
		})
	}
}
