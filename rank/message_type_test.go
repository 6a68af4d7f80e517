package rank_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func init() {
	programs["types"] = func() { rank.Main(types) }
	programs["types on a device"] = func() { onDevice(types) }
}

// A point has one basic type, and so no other mark than its numbers.
type point struct{ X, Y float64 }

// A labelled has two.
type labelled struct {
	ID int64
	X  float64
}

// types sends what the last rank receives as another type: of each length, to a receive that waits and to one that comes
// later, in each mode. The first rank sends, and the last one sends to itself, too.
func types(ctx context.Context, c *rank.Comm) error {
	for _, from := range []int{0, c.Size() - 1} {
		for _, n := range []int{2, 20, 200, 2000, 100_000} {
			for early := range 2 {
				for mode := range modes {
					if err := mistyped(ctx, c, from, n, mode, early == 1); err != nil {
						return fmt.Errorf("%s of %d int32 from rank %d, receive first: %v: %w", modes[mode].name, n, from, early == 1, err)
					}
				}
			}
		}
	}
	return matching(ctx, c)
}

var modes = []struct {
	name string
	f    func(c *rank.Comm, buf []int32, dst, tag int) (rank.Request, error)
}{{"isend", rank.Isend[int32]}, {"issend", rank.Issend[int32]}}

func mistyped(ctx context.Context, c *rank.Comm, from, n, mode int, early bool) error {
	to := c.Size() - 1
	in := make([]float64, n)
	var send, recv rank.Request
	var err error
	if early && c.Rank() == to {
		if recv, err = rank.Irecv(c, in, from, 7); err != nil {
			return err
		}
	}
	if err := rank.Barrier(ctx, c); err != nil {
		return err
	}
	if c.Rank() == from {
		if send, err = modes[mode].f(c, make([]int32, n), to, 7); err != nil {
			return err
		}
	}
	if err := rank.Barrier(ctx, c); err != nil {
		return err
	}
	if c.Rank() == to {
		in[0] = 42
		if early {
			_, err = recv.Wait(ctx)
		} else {
			_, err = rank.Recv(ctx, c, in, rank.AnySource, 7)
		}
		want := fmt.Sprintf("rank %d has sent int32 with tag 7, and this receive is of float64: receive int32, or bytes", from)
		if !errors.Is(err, rank.ClassType) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("error %v, want %q of class MPI_ERR_TYPE", err, want)
		}
		if in[0] != 42 {
			return errors.New("the receive has changed its memory")
		}
	}
	if c.Rank() == from {
		if _, err := send.Wait(ctx); err != nil {
			return fmt.Errorf("the send: %w", err)
		}
	}
	return nil
}

// matching is what MPI's rules allow, and the ways of receiving that mistyped leaves out.
func matching(ctx context.Context, c *rank.Comm) error {
	me, at := c.Rank(), c.Size()-1
	pair := func(name string, send, recv rank.Buffer, refused bool) error {
		q, err := c.Irecv(recv, me, 1)
		if err != nil {
			return err
		}
		err = c.Send(ctx, send, me, 1)
		_, failed := q.Wait(ctx)
		if err != nil || (failed != nil) != refused || refused && !errors.Is(failed, rank.ClassType) {
			return fmt.Errorf("%s: %w; refused is to be %v", name, errors.Join(err, failed), refused)
		}
		return nil
	}
	column, err := rank.Vector(2, 1, 3, rank.TypeFloat64)
	if err != nil {
		return err
	}
	for _, tt := range []struct {
		name       string
		send, recv rank.Buffer
		refused    bool
	}{
		{"bytes as numbers", rank.Of(make([]byte, 16)), rank.Of(make([]int64, 2)), false},
		{"numbers as bytes", rank.Of(make([]int64, 2)), rank.Of(make([]byte, 16)), false},
		{"int as int64", rank.Of(make([]int, 2)), rank.Of(make([]int64, 2)), false},
		{"int64 as uint64", rank.Of(make([]int64, 2)), rank.Of(make([]uint64, 2)), true},
		{"nothing", rank.Of([]int64{}), rank.Of(make([]float32, 2)), false},
		{"a struct of one type", rank.Of(make([]point, 1)), rank.Of(make([]float64, 2)), false},
		{"a struct of one type as another", rank.Of(make([]point, 1)), rank.Of(make([]int64, 2)), true},
		{"a struct of two types", rank.Of(make([]labelled, 1)), rank.Of(make([]int64, 2)), false}, // not seen
		{"a column as a row", rank.Typed(make([]float64, 6), 1, column), rank.Of(make([]float64, 2)), false},
		{"a column as a row of another type", rank.Typed(make([]float64, 6), 1, column), rank.Of(make([]int64, 2)), true},
		{"a row as a column of another type", rank.Of(make([]int64, 2)), rank.Typed(make([]float64, 6), 1, column), true},
	} {
		if err := pair(tt.name, tt.send, tt.recv, tt.refused); err != nil {
			return err
		}
	}
	if err := rank.Barrier(ctx, c); err != nil {
		return err
	}
	// A probe has taken the message; both directions at once; a partitioned one; the connection lives.
	if me == 0 {
		err := errors.Join(rank.Send(ctx, c, []int32{1, 2}, at, 2), rank.Send(ctx, c, []int32{1, 2}, at, 3), rank.Send(ctx, c, []int32{5}, at, 4))
		if err != nil {
			return err
		}
	}
	if me == at {
		m, _, err := rank.Mprobe(ctx, c, 0, 2)
		if err != nil {
			return err
		}
		_, probed := rank.Mrecv(ctx, m, make([]float64, 1))
		_, both := rank.Sendrecv(ctx, c, []float64{1}, rank.ProcNull, 0, make([]float64, 1), 0, 3)
		if !errors.Is(probed, rank.ClassType) || !errors.Is(both, rank.ClassType) {
			return fmt.Errorf("mrecv: %v; sendrecv: %v; want errors of class MPI_ERR_TYPE", probed, both)
		}
		after := make([]int32, 1)
		if _, err := rank.Recv(ctx, c, after, 0, 4); err != nil || after[0] != 5 {
			return fmt.Errorf("the message after is %d, want 5: %w", after[0], err)
		}
	}
	return partitions(ctx, c, at)
}

func partitions(ctx context.Context, c *rank.Comm, at int) error {
	var send, recv rank.Request
	var err error
	if c.Rank() == 0 {
		if send, err = rank.PsendInit(c, make([]int32, 4), 2, at, 9); err != nil {
			return err
		}
	}
	if c.Rank() == at {
		if recv, err = rank.PrecvInit(c, make([]float64, 2), 2, 0, 9); err != nil {
			return err
		}
		if err := recv.Start(); err != nil {
			return err
		}
	}
	if c.Rank() == 0 {
		if err := errors.Join(send.Start(), send.PreadyRange(0, 1)); err != nil {
			return err
		}
	}
	if c.Rank() == at {
		_, err := recv.Wait(ctx)
		if want := "rank 0 has sent int32 with tag 9"; !errors.Is(err, rank.ClassType) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("partitions: error %v, want %q of class MPI_ERR_TYPE", err, want)
		}
		if err := recv.Free(); err != nil {
			return err
		}
	}
	if c.Rank() == 0 {
		if _, err := send.Wait(ctx); err != nil {
			return err
		}
		return send.Free()
	}
	return nil
}

// A message that its receive takes for another type is an error, whichever way it goes.
func TestReceiveRefusesAnotherType(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 3}, types)
	for _, verbs := range []bool{false, true} {
		t.Run(fmt.Sprintf("dynamic/verbs=%v", verbs), func(t *testing.T) { overBudget(t, 2, 0, verbs, types) })
	}
	for _, tt := range []struct {
		program string
		hosts   []int
		env     []string
	}{{"types", []int{2}, nil}, {"types", []int{1, 1}, nil}, {"types on a device", []int{2}, nil}, {"types on a device", []int{1, 1}, nil}, {"types", []int{1, 1}, overEveryBudget}} {
		if arch.RaceEnabled && len(tt.hosts) > 1 {
			continue // for the reason that TestProcesses gives
		}
		t.Run(fmt.Sprintf("%s/%v/%v", tt.program, tt.hosts, tt.env), func(t *testing.T) {
			j := &job{program: tt.program, hosts: tt.hosts, env: tt.env}
			j.start(t)
			j.done(t)
		})
	}
}
