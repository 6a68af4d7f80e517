package rank_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"

	"github.com/gorun-mpi/gorun/rank"
)

// Two processes form a world without a launcher. Here both are goroutines of one program, and rank 0 listens at any port.
func ExampleJoin() {
	ctx := context.Background()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addresses := []string{l.Addr().String(), "127.0.0.1"}
	member := func(m rank.Members) error {
		w, err := rank.Join(ctx, m, rank.Config{})
		if err != nil {
			return err
		}
		sum, err := rank.AllreduceOne(ctx, w.Comm(), m.Rank+1, rank.Sum)
		if m.Rank == 0 {
			fmt.Println("1+2 =", sum)
		}
		return errors.Join(err, w.Finalize(ctx))
	}
	var all sync.WaitGroup
	for _, m := range []rank.Members{{Addresses: addresses, Listener: l}, {Addresses: addresses, Rank: 1}} {
		all.Go(func() {
			if err := member(m); err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	// Output: 1+2 = 3
}
