package rank_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorun-mpi/gorun/rank"
)

// A sum of all ranks is under way while each computes something else.
func ExampleIallreduce() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		residual := []float64{float64(c.Rank()) / 2}
		total := make([]float64, 1)
		q, err := rank.Iallreduce(c, residual, total, rank.Sum)
		if err != nil {
			return err
		}
		work := 0
		for i := range 1000 { // what does not need the sum
			work += i
			if i%100 == 0 { // lets the sum move on
				if _, _, err := q.Test(); err != nil {
					return err
				}
			}
		}
		if _, err := q.Wait(ctx); err != nil { // at once, if Test saw the end
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(work, total[0])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 499500 3
}

// Ranks in a row exchange the borders of their parts with their neighbours in each
// step, by a request that is made once.
func ExampleNeighborAlltoallInit() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		grid, err := c.CartCreate(ctx, []int{4}, []bool{false}, false)
		if err != nil {
			return err
		}
		cell := 0.0
		if grid.Rank() == 0 {
			cell = 64
		}
		borders, halo := make([]float64, 2), make([]float64, 2) // below, above
		exchange, err := rank.NeighborAlltoallInit(grid, borders, halo)
		if err != nil {
			return err
		}
		for range 6 {
			borders[0], borders[1] = cell, cell
			halo[0], halo[1] = cell, cell // stays so at the ends, which have one neighbour
			if err := exchange.Start(); err != nil {
				return err
			}
			if _, err := exchange.Wait(ctx); err != nil {
				return err
			}
			cell = (halo[0] + 2*cell + halo[1]) / 4
		}
		if err := exchange.Free(); err != nil {
			return err
		}
		rod := make([]float64, 4)
		if err := rank.Gather(ctx, grid, []float64{cell}, rod, 0); err != nil {
			return err
		}
		if grid.Rank() == 0 {
			fmt.Printf("%.2f\n", rod)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [26.81 20.12 11.38 5.69]
}

// Products of matrices depend on the order of the ranks, which is kept.
func ExampleOpFunc() {
	type matrix [4]int // of two rows
	product := rank.OpFunc("product", false, func(dst, a, b []matrix) {
		for i := range dst {
			x, y := a[i], b[i]
			dst[i] = matrix{
				x[0]*y[0] + x[1]*y[2], x[0]*y[1] + x[1]*y[3],
				x[2]*y[0] + x[3]*y[2], x[2]*y[1] + x[3]*y[3],
			}
		}
	})
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		m := []matrix{{1, c.Rank(), 0, c.Rank() + 1}}
		if err := rank.Allreduce(ctx, c, nil, m, product); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(m[0])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [1 5 0 6]
}

// Rank r gives each rank r+1 numbers.
func ExampleAlltoallv() {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		n := c.Size()
		sendCounts, recvCounts := make([]int, n), make([]int, n)
		var send []int
		for r := range n {
			sendCounts[r], recvCounts[r] = c.Rank()+1, r+1
			for i := range sendCounts[r] {
				send = append(send, 100*c.Rank()+10*r+i)
			}
		}
		recv := make([]int, 6)
		if err := rank.Alltoallv(ctx, c, send, sendCounts, nil, recv, recvCounts, nil); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [10 110 111 210 211 212]
}

// Which rank has the smallest value?
func ExampleReduce_minLoc() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		mine := []rank.Pair[float64]{{Value: float64((c.Rank()*3 + 2) % 5), Index: int32(c.Rank())}}
		best := make([]rank.Pair[float64], 1)
		if err := rank.Reduce(ctx, c, mine, best, rank.MinLoc, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%v of rank %d\n", best[0].Value, best[0].Index)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 0 of rank 1
}
