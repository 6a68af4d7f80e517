package rank_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorun-mpi/gorun/rank"
)

// A program is tested as goroutines of one process; with rank.Main in place of
// rank.Run the same function runs under a launcher.
func ExampleRun() {
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		sum := make([]int, 1)
		if err := rank.Allreduce(ctx, c, []int{c.Rank() + 1}, sum, rank.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("1+2+3+4 =", sum[0])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 1+2+3+4 = 10
}

func ExampleAlltoall() {
	err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
		// Registered memory is reached by peers directly; any slice would do.
		send, err := rank.Alloc[int32](c, c.Size())
		if err != nil {
			return err
		}
		recv, err := rank.Alloc[int32](c, c.Size())
		if err != nil {
			return err
		}
		for to := range send {
			send[to] = int32(10*c.Rank() + to)
		}
		if err := rank.Alltoall(ctx, c, send, recv); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [2 12 22]
}

func ExampleSend() {
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			return rank.Send(ctx, c, []float64{3.25, 4.5}, 0, 7)
		}
		buf := make([]float64, 10)
		st, err := rank.Recv(ctx, c, buf, rank.AnySource, rank.AnyTag)
		if err != nil {
			return err
		}
		fmt.Printf("%v from rank %d with tag %d\n", buf[:st.Count], st.Source, st.Tag)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [3.25 4.5] from rank 1 with tag 7
}

func ExampleSendrecv() {
	// A ring: everybody gives to the right and takes from the left.
	err := rank.Run(4, func(ctx context.Context, c *rank.Comm) error {
		right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		got := make([]int, 1)
		if _, err := rank.Sendrecv(ctx, c, []int{c.Rank()}, right, 0, got, left, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("rank 0 took", got[0])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: rank 0 took 3
}

func ExampleComm_Split() {
	err := rank.Run(6, func(ctx context.Context, c *rank.Comm) error {
		// Even ranks and odd ranks apart, the highest first.
		half, err := c.Split(ctx, c.Rank()%2, -c.Rank())
		if err != nil {
			return err
		}
		defer half.Free(ctx)
		all := make([]int, half.Size())
		if err := rank.Allgather(ctx, half, []int{c.Rank()}, all); err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Println("rank 3 is", half.Rank(), "of", all)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: rank 3 is 1 of [5 3 1]
}

func ExampleInit() {
	ctx := context.Background()
	w, err := rank.Init(ctx, rank.Config{}) // without a launcher: a world of one
	if err != nil {
		log.Fatal(err)
	}
	c := w.Comm()
	fmt.Printf("rank %d of %d\n", c.Rank(), c.Size())
	if err := w.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: rank 0 of 1
}

func ExampleFindDevices() {
	err := rank.FindDevices(rank.Config{Environment: &rank.Environment{}, Devices: []string{"mlx5_0"}})
	fmt.Println(err)
	// Output: no RDMA device "mlx5_0": there is soft0 (soft) (gorun --emulate mlx5_0 makes a software device of that name)
}
