package rank_test

import (
	"context"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
)

// What a collective costs before anybody is waited for: a world of one. Alternating
// calls are how programs and benchmarks make them.
func BenchmarkAlone(b *testing.B) {
	err := rank.Run(1, func(ctx context.Context, c *rank.Comm) error {
		in, out := make([]float32, 2), make([]float32, 2)
		pair, err := rank.Contiguous(2, rank.TypeFloat32)
		if err != nil {
			return err
		}
		b.Run("barrier", func(b *testing.B) {
			for b.Loop() {
				succeed(b, rank.Barrier(ctx, c))
			}
		})
		b.Run("allreduce", func(b *testing.B) {
			for b.Loop() {
				succeed(b, rank.Allreduce(ctx, c, in, out, rank.Sum))
			}
		})
		send, recv := rank.Of(in), rank.Typed(out, 1, pair)
		b.Run("allreduce of Buffers", func(b *testing.B) {
			for b.Loop() {
				succeed(b, c.Allreduce(ctx, send, recv, rank.Sum))
			}
		})
		b.Run("alternating", func(b *testing.B) {
			for b.Loop() {
				succeed(b, rank.Barrier(ctx, c))
				succeed(b, rank.Allreduce(ctx, c, in, out, rank.Sum))
			}
		})
		b.Run("bcast", func(b *testing.B) {
			for b.Loop() {
				succeed(b, rank.Bcast(ctx, c, out, 0))
			}
		})
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func succeed(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}
