package rank_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// BenchmarkWindow is one-sided traffic from rank 0 to rank 1, which makes no call meanwhile,
// in memory that the device maps and in memory that requests reach (PostSend).
func BenchmarkWindow(b *testing.B) {
	for _, fl := range flavours {
		if fl.name == "create of alloc" {
			continue
		}
		for _, n := range []int{1, 128, 8 << 10, 128 << 10} { // of 8 bytes
			src := make([]int64, n)
			for name, call := range map[string]func(ctx context.Context, w *rank.Win[int64]) error{
				"put alone": func(_ context.Context, w *rank.Win[int64]) error { return w.Put(src, 1, 0) },
				"flush":     func(ctx context.Context, w *rank.Win[int64]) error { return w.Flush(ctx, 1) },
				"lock and unlock": func(ctx context.Context, w *rank.Win[int64]) error {
					return errors.Join(w.Lock(ctx, rank.LockShared, 0, 0), w.Unlock(ctx, 0))
				},
				"put": func(ctx context.Context, w *rank.Win[int64]) error {
					if err := w.Put(src, 1, 0); err != nil {
						return err
					}
					return w.Flush(ctx, 1)
				},
				"get": func(ctx context.Context, w *rank.Win[int64]) error {
					if err := w.Get(src, 1, 0); err != nil {
						return err
					}
					return w.Flush(ctx, 1)
				},
				"accumulate": func(_ context.Context, w *rank.Win[int64]) error { return w.Accumulate(src, 1, 0, rank.Sum) },
			} {
				b.Run(fmt.Sprintf("%s/%s/%d", fl.name, name, 8*n), func(b *testing.B) {
					b.SetBytes(int64(8 * n))
					done := make(chan struct{})
					ranktest.Run(b, 2, func(ctx context.Context, c *rank.Comm) error {
						w, _, err := fl.open(ctx, c, n)
						if err != nil {
							return err
						}
						if c.Rank() == 0 {
							if err := w.Lock(ctx, rank.LockShared, 1, 0); err != nil {
								return err
							}
							b.ResetTimer()
							for range b.N {
								if err := call(ctx, w); err != nil {
									return err
								}
							}
							b.StopTimer()
							close(done)
							if err := w.Unlock(ctx, 1); err != nil {
								return err
							}
						}
						select {
						case <-done:
						case <-ctx.Done(): // rank 0 has failed
						}
						return rank.Barrier(ctx, c)
					})
				})
			}
		}
	}
}
