package rank_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gorun-mpi/gorun/rank"
)

// A halo exchange: each rank holds a strip of a line of numbers, with one cell
// beyond each end that belongs to its neighbour.
func ExampleComm_CartShift() {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		line, err := c.CartCreate(ctx, []int{3}, []bool{false}, false)
		if err != nil {
			return err
		}
		defer line.Free(ctx)
		left, right, err := line.CartShift(0, 1)
		if err != nil {
			return err
		}
		r := float64(line.Rank())
		strip := []float64{-1, 10*r + 1, 10*r + 2, -1}
		// To the right, and then to the left. At the ends of the line the
		// neighbour is ProcNull, and the cell stays as it is.
		if _, err := rank.Sendrecv(ctx, line, strip[2:3], right, 0, strip[:1], left, 0); err != nil {
			return err
		}
		if _, err := rank.Sendrecv(ctx, line, strip[1:2], left, 1, strip[3:], right, 1); err != nil {
			return err
		}
		all := make([]float64, 12)
		if err := rank.Gather(ctx, line, strip, all, 0); err != nil {
			return err
		}
		if line.Rank() == 0 {
			fmt.Println(all[:4], all[4:8], all[8:])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [-1 1 2 11] [2 11 12 21] [12 21 22 -1]
}

// Two groups, servers and clients, that name each other's ranks.
func ExampleCreateIntercomm() {
	err := rank.Run(5, func(ctx context.Context, c *rank.Comm) error {
		const servers = 2
		side, remoteLeader := 0, servers // the first client
		if c.Rank() >= servers {
			side, remoteLeader = 1, 0 // the first server
		}
		local, err := c.Split(ctx, side, 0)
		if err != nil {
			return err
		}
		inter, err := rank.CreateIntercomm(ctx, local, 0, c, remoteLeader, 0)
		if err != nil {
			return err
		}
		if side == 1 { // asks one of the servers
			return rank.Send(ctx, inter, []int{100 + inter.Rank()}, inter.Rank()%inter.RemoteSize(), 0)
		}
		sum := 0
		for client := inter.Rank(); client < inter.RemoteSize(); client += servers {
			question := []int{0}
			if _, err := rank.Recv(ctx, inter, question, client, 0); err != nil {
				return err
			}
			sum += question[0]
		}
		if inter.Rank() == 0 {
			fmt.Println("server 0 was asked", sum)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: server 0 was asked 202
}

// The ranks of each host together, and the first of each host apart.
func ExampleComm_SplitType() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		host, err := c.SplitType(ctx, rank.TypeShared, 0)
		if err != nil {
			return err
		}
		color := rank.Undefined
		if host.Rank() == 0 {
			color = 0
		}
		leaders, err := c.Split(ctx, color, 0)
		if err != nil {
			return err
		}
		if leaders != nil && leaders.Rank() == 0 {
			fmt.Println(leaders.Size(), "host, of", host.Size(), "ranks")
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 1 host, of 4 ranks
}

// A library keeps what it knows about a communicator with it.
func ExampleKeyval() {
	calls := rank.NewKeyval(rank.CopyValue[int], nil)
	err := rank.Run(1, func(ctx context.Context, c *rank.Comm) error {
		for range 3 {
			n, _ := calls.Get(c)
			if err := calls.Set(c, n+1); err != nil {
				return err
			}
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		n, found := calls.Get(d)
		fmt.Println(n, found)
		return d.Free(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 3 true
}

// Errors say what, where and with whom, and have MPI's classes.
func ExampleClass() {
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		err := rank.Send(ctx, c, []int{1}, 7, 0)
		if c.Rank() == 0 {
			fmt.Println(errors.Is(err, rank.ClassRank), rank.ClassOf(err))
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: true MPI_ERR_RANK
}
