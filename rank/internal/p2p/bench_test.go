package p2p

import (
	"context"
	"errors"
	"testing"
)

// BenchmarkEager is a short message there and one back between two engines that one
// goroutine drives: what the engine itself costs, without anybody's waiting.
func BenchmarkEager(b *testing.B) {
	for _, tr := range []transport{{name: "mapped", mapped: true}, {name: "queue pairs"}} {
		b.Run(tr.name, func(b *testing.B) {
			others, done := make(chan *member, 1), make(chan struct{})
			runEngines(b, 2, tr, func(ctx context.Context, p *member) error {
				if p.self.rank == 1 {
					others <- p
					<-done
					return nil
				}
				defer close(done)
				q, data, buf := <-others, make([]byte, 8), make([]byte, 8)
				pass := func(from, to *member) error {
					o, err := to.Irecv(buf, nil, want(from.self.rank, 1), nil)
					if err != nil {
						return err
					}
					if !from.TrySend(data, from.env(1), to.self.rank, Standard) {
						return errors.New("there is no room")
					}
					for !o.Done() {
						to.Progress()
					}
					_, err = to.Finish(o)
					return err
				}
				for b.Loop() {
					if err := errors.Join(pass(p, q), pass(q, p)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
