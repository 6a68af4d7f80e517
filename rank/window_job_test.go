package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["windows"] = func() { rank.Main(windows) }
	programs["death in windows"] = mournWindow
}

// windows does a little of everything in processes: what the tests in one process
// check in depth.
func windows(ctx context.Context, c *rank.Comm) error {
	size, me := c.Size(), c.Rank()
	right := (me + 1) % size
	for _, fl := range flavours {
		w, mem, err := fl.open(ctx, c, 3)
		if err != nil {
			return err
		}
		from, err1 := w.Group().Incl([]int{(me + size - 1) % size})
		to, err2 := w.Group().Incl([]int{right})
		if err := errors.Join(err1, err2, w.Fence(ctx, 0), w.Put([]int64{int64(me)}, right, 0), w.Fence(ctx, rank.ModeNoSucceed)); err != nil {
			return err
		}
		if want := int64((me + size - 1) % size); mem[0] != want {
			return fmt.Errorf("%s: a fence brought %d, want %d", fl.name, mem[0], want)
		}
		for i := range 50 {
			if err := errors.Join(w.Post(from, 0), w.Start(ctx, to, 0), w.Put([]int64{int64(1000*i + me)}, right, 0), w.Complete(ctx), w.Wait(ctx)); err != nil {
				return err
			}
			if want := int64(1000*i + (me+size-1)%size); mem[0] != want {
				return fmt.Errorf("%s, round %d: post and wait brought %d, want %d", fl.name, i, mem[0], want)
			}
		}
		for i := range 50 {
			target := (me + i) % size
			var v [1]int64
			if err := errors.Join(w.Lock(ctx, rank.LockExclusive, target, 0), w.Get(v[:], target, 1), w.Flush(ctx, target)); err != nil {
				return err
			}
			v[0]++
			if err := errors.Join(w.Put(v[:], target, 1), w.Unlock(ctx, target)); err != nil {
				return err
			}
			if err := errors.Join(w.LockAll(ctx, 0), w.Accumulate([]int64{1}, 0, 2, rank.Sum), w.UnlockAll(ctx)); err != nil {
				return err
			}
		}
		var counted int64
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		sum := make([]int64, 1)
		if err := rank.Allreduce(ctx, c, mem[1:2], sum, rank.Sum); err != nil {
			return err
		}
		if counted = sum[0]; counted != int64(50*size) || me == 0 && mem[2] != int64(50*size) {
			return fmt.Errorf("%s: %d and %d are counted, want %d", fl.name, counted, mem[2], 50*size)
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestWindowProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		name    string
		hosts   []int
		foreign bool
	}{
		{"one", []int{1}, false},
		{"four", []int{4}, false},
		{"two hosts", []int{2, 1}, false},
		{"three hosts", []int{1, 2, 1}, false},
		{"foreign launcher", []int{3}, true},
	} {
		if arch.RaceEnabled && len(tt.hosts) > 1 {
			// As in TestProcesses: what TCP brings is written by another
			// goroutine, and the order comes about through mapped words.
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			j := &job{program: "windows", hosts: tt.hosts, foreign: tt.foreign}
			j.start(t)
			j.done(t)
		})
	}
}

// mournWindow: rank 1 holds a lock when it is killed. The others get the lock, and
// then learn that they wait for it in vain.
func mournWindow() {
	ctx := context.Background()
	w, err := rank.Init(ctx, rank.Config{})
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	c := w.Comm()
	win, err := rank.WinAllocate[int64](ctx, c, 10)
	if err == nil && c.Rank() == 1 {
		err = win.Lock(ctx, rank.LockExclusive, 0, 0)
	}
	if err = errors.Join(err, rank.Barrier(ctx, c)); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	fmt.Println("ready")
	if c.Rank() != 1 {
		start := time.Now()
		err := errors.Join(win.Lock(ctx, rank.LockExclusive, 0, 0), win.Put([]int64{1}, 0, 0), win.Unlock(ctx, 0))
		if err != nil {
			fmt.Printf("wrong: the lock of the dead: %v\n", err)
		} else if c.Rank() == 0 {
			one, _ := win.Group().Incl([]int{1})
			err = win.Start(ctx, one, 0)
		} else {
			err = win.Fence(ctx, 0)
		}
		fmt.Printf("%v after %v\n%s\n", err, time.Since(start).Round(time.Millisecond), judge(c, err))
	}
	for {
		_ = unix.Pause()
	}
}
