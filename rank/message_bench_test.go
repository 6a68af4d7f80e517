package rank

import (
	"context"
	"testing"
)

// BenchmarkSelf is a message to the rank itself: what the layers above the engine
// cost is in it, and no other rank's time.
func BenchmarkSelf(b *testing.B) {
	for name, f := range map[string]func(ctx context.Context, c *Comm, out, in []float64) error{
		"send, recv": func(ctx context.Context, c *Comm, out, in []float64) error {
			if err := Send(ctx, c, out, 0, 1); err != nil {
				return err
			}
			_, err := Recv(ctx, c, in, 0, 1)
			return err
		},
		"irecv, isend, wait": func(ctx context.Context, c *Comm, out, in []float64) error {
			r, err := Irecv(c, in, 0, 1)
			if err != nil {
				return err
			}
			s, err := Isend(c, out, 0, 1)
			if err != nil {
				return err
			}
			if _, err := s.Wait(ctx); err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		},
		"engine": func(ctx context.Context, c *Comm, out, in []float64) error {
			w := c.world
			e, to, _ := c.envelope(c.userContext(), 0, 1, false)
			if err := w.messages.Send(ctx, bytesOf(out), nil, e, to); err != nil {
				return err
			}
			_, err := w.messages.Recv(ctx, bytesOf(in), nil, e, nil)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			err := Run(1, func(ctx context.Context, c *Comm) error {
				out, in := make([]float64, 1), make([]float64, 1)
				for b.Loop() {
					if err := f(ctx, c, out, in); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
