// Command window is a program with one-sided communication for the scripts of
// this folder. Every rank checks what it can see, and rank 0 says what came out.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {
	programs := map[string]func(context.Context, *rank.Comm) error{"counter": counter, "halo": halo, "shared": shared}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: window counter | halo | shared")
		os.Exit(2)
	}
	rank.Main(programs[os.Args[1]])
}

// counter: all ranks draw numbers from one counter on the last rank, and none is
// drawn twice or left out. Under the lock of rank 0 they count in two plain words.
func counter(ctx context.Context, c *rank.Comm) error {
	const draws = 500
	size, me := c.Size(), c.Rank()
	w, err := rank.WinAllocate[int64](ctx, c, 2)
	if err != nil {
		return err
	}
	if err := w.LockAll(ctx, 0); err != nil {
		return err
	}
	mine := make([]int64, draws)
	for i := range mine {
		if mine[i], err = w.FetchAndOp(1, size-1, 0, rank.Sum); err != nil {
			return err
		}
	}
	if err := w.UnlockAll(ctx); err != nil {
		return err
	}
	all := make([]int64, draws*size)
	if err := rank.Allgather(ctx, c, mine, all); err != nil {
		return err
	}
	slices.Sort(all)
	for i, v := range all {
		if v != int64(i) {
			return fmt.Errorf("number %d drawn is %d", i, v)
		}
	}
	// The epochs of counting are others.
	if err := errors.Join(w.Fence(ctx, rank.ModeNoPrecede), w.Put([]int64{0, 0}, me, 0), w.Fence(ctx, rank.ModeNoSucceed)); err != nil {
		return err
	}
	var v [2]int64
	for range draws / 10 {
		if err := errors.Join(w.Lock(ctx, rank.LockExclusive, 0, 0), w.Get(v[:], 0, 0), w.Flush(ctx, 0)); err != nil {
			return err
		}
		v[0]++
		v[1] -= 2
		if err := errors.Join(w.Put(v[:], 0, 0), w.Unlock(ctx, 0)); err != nil {
			return err
		}
	}
	if err := rank.Barrier(ctx, c); err != nil {
		return err
	}
	if b, n := w.Base(), int64(draws/10*size); me == 0 {
		if b[0] != n || b[1] != -2*n {
			return fmt.Errorf("%d and %d are counted, want %d and %d", b[0], b[1], n, -2*n)
		}
		fmt.Printf("%d numbers drawn, %d counted\n", len(all), n)
	}
	return w.Free(ctx)
}

// halo: heat flows along a rod. Each rank has a part of it and puts its ends into
// the halos of its neighbours, between fences. What comes out has the bits of a
// rank that computes the whole rod.
func halo(ctx context.Context, c *rank.Comm) error {
	const cells, steps = 60, 200
	size, me := c.Size(), c.Rank()
	from, to := me*cells, (me+1)*cells // the own part
	start := func(i int) float64 { return float64(i*i%17) / 3 }
	flow := func(next, now []float64) {
		for i := 1; i < len(now)-1; i++ {
			next[i] = now[i] + 0.2*(now[i-1]-2*now[i]+now[i+1])
		}
	}
	// Two windows take turns: what arrives for the next step does not disturb this one.
	var wins [2]*rank.Win[float64]
	for i := range wins {
		mem := make([]float64, to-from+2) // the program's memory, a halo at each end
		var err error
		if i == 0 {
			wins[i], err = rank.WinCreate(ctx, c, mem)
		} else {
			wins[i], err = rank.WinAllocate[float64](ctx, c, len(mem))
		}
		if err != nil {
			return err
		}
		if err := wins[i].Fence(ctx, rank.ModeNoPrecede); err != nil {
			return err
		}
	}
	left, right := me-1, me+1
	if me == 0 {
		left = rank.ProcNull
	}
	if right == size {
		right = rank.ProcNull
	}
	exchange := func(w *rank.Win[float64]) error {
		b := w.Base()
		n := len(b)
		return errors.Join(w.Put(b[1:2], left, n-1), w.Put(b[n-2:n-1], right, 0), w.Fence(ctx, 0))
	}
	for i := range to - from {
		wins[0].Base()[i+1] = start(from + i)
	}
	for step := range steps {
		now, next := wins[step%2], wins[(step+1)%2]
		if err := exchange(now); err != nil {
			return err
		}
		flow(next.Base(), now.Base())
	}
	whole, other := make([]float64, cells*size+2), make([]float64, cells*size+2)
	for i := range cells * size {
		whole[i+1] = start(i)
	}
	for range steps {
		flow(other, whole)
		whole, other = other, whole
	}
	for i, v := range wins[steps%2].Base()[1 : to-from+1] {
		if want := whole[1+from+i]; v != want {
			return fmt.Errorf("cell %d is %v, want %v", from+i, v, want)
		}
	}
	if me == 0 {
		fmt.Printf("%d cells, %d steps\n", cells*size, steps)
	}
	return errors.Join(wins[0].Fence(ctx, rank.ModeNoSucceed), wins[1].Fence(ctx, rank.ModeNoSucceed), wins[0].Free(ctx), wins[1].Free(ctx))
}

// shared: the ranks of each host store into each other's memory. Those of several
// hosts are told that they cannot.
func shared(ctx context.Context, c *rank.Comm) error {
	host, err := c.SplitType(ctx, rank.TypeShared, 0)
	if err != nil {
		return err
	}
	if host.Size() < c.Size() {
		if _, err := rank.WinAllocateShared[int64](ctx, c, 1); !errors.Is(err, rank.ClassWin) {
			return fmt.Errorf("a shared window of two hosts: %v", err)
		}
	}
	size, me := host.Size(), host.Rank()
	w, err := rank.WinAllocateShared[int64](ctx, host, size)
	if err != nil {
		return err
	}
	if err := w.Fence(ctx, 0); err != nil {
		return err
	}
	for r := range size {
		mem, err := w.Query(r)
		if err != nil {
			return err
		}
		mem[me] = int64(100*r + me)
	}
	if err := w.Fence(ctx, rank.ModeNoSucceed); err != nil {
		return err
	}
	for i, v := range w.Base() {
		if v != int64(100*me+i) {
			return fmt.Errorf("rank %d has stored %d at rank %d", i, v, me)
		}
	}
	if err := w.Free(ctx); err != nil {
		return err
	}
	if c.Rank() == 0 {
		fmt.Printf("%d of %d ranks share memory\n", size, c.Size())
	}
	return host.Free(ctx)
}
