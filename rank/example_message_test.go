package rank_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorun-mpi/gorun/rank"
)

// Both neighbours of a ring exchange their values while nobody waits for anybody.
func ExampleIsend() {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		left, right := (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
		own := []int{10 * c.Rank()}
		fromLeft, fromRight := make([]int, 1), make([]int, 1)
		reqs := make([]rank.Request, 4)
		var err error
		for i, start := range []func() (rank.Request, error){
			func() (rank.Request, error) { return rank.Irecv(c, fromLeft, left, 0) },
			func() (rank.Request, error) { return rank.Irecv(c, fromRight, right, 1) },
			func() (rank.Request, error) { return rank.Isend(c, own, right, 0) },
			func() (rank.Request, error) { return rank.Isend(c, own, left, 1) },
		} {
			if reqs[i], err = start(); err != nil {
				return err
			}
		}
		// ... work that needs no neighbour ...
		if err := rank.WaitAll(ctx, reqs, nil); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(fromLeft[0], own[0], fromRight[0])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 0 10 20
}

// A column of a matrix is sent as it lies, and received as a row.
func ExampleVector() {
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			row := make([]float64, 3)
			if _, err := rank.Recv(ctx, c, row, 0, 0); err != nil {
				return err
			}
			fmt.Println(row)
			return nil
		}
		matrix := []float64{
			11, 12, 13, 14,
			21, 22, 23, 24,
			31, 32, 33, 34,
		}
		float, err := rank.TypeFor[float64]()
		if err != nil {
			return err
		}
		column, err := rank.Vector(3, 1, 4, float)
		if err != nil {
			return err
		}
		return c.Send(ctx, rank.Typed(matrix[1:], 1, column), 1, 0)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [12 22 32]
}

// Structs are sent like numbers; padding does not travel.
func ExampleSend_struct() {
	type Particle struct {
		ID       int32
		Position [2]float64
		Alive    bool
	}
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			return rank.Send(ctx, c, []Particle{{7, [2]float64{0.5, 1.5}, true}}, 1, 0)
		}
		in := make([]Particle, 10)
		st, err := rank.Recv(ctx, c, in, 0, 0)
		if err != nil {
			return err
		}
		fmt.Println(in[:st.Count], st.Bytes, "bytes")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [{7 [0.5 1.5] true}] 21 bytes
}

// A message of unknown length: the probe takes it, and only its Message receives it.
func ExampleMprobe() {
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			return rank.Send(ctx, c, []int16{1, 2, 3, 5, 8}, 1, 0)
		}
		m, st, err := rank.Mprobe(ctx, c, rank.AnySource, rank.AnyTag)
		if err != nil {
			return err
		}
		t, err := rank.TypeFor[int16]()
		if err != nil {
			return err
		}
		in := make([]int16, st.GetCount(t))
		if _, err := rank.Mrecv(ctx, m, in); err != nil {
			return err
		}
		fmt.Println(in)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [1 2 3 5 8]
}

// The same exchange again and again is prepared once: values travel round a ring.
func ExampleRequest_Start() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		out, in := []int{c.Rank()}, make([]int, 1)
		send, err := rank.SendInit(c, out, (c.Rank()+1)%c.Size(), 0)
		if err != nil {
			return err
		}
		recv, err := rank.RecvInit(c, in, (c.Rank()+c.Size()-1)%c.Size(), 0)
		if err != nil {
			return err
		}
		both := []rank.Request{recv, send}
		for range c.Size() - 1 {
			if err := rank.StartAll(both); err != nil {
				return err
			}
			if err := rank.WaitAll(ctx, both, nil); err != nil {
				return err
			}
			out[0] = in[0]
		}
		if c.Rank() == 0 {
			fmt.Println("rank 0 holds what rank", in[0], "had")
		}
		for _, q := range both {
			if err := q.Free(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: rank 0 holds what rank 1 had
}
