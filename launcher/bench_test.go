package launcher

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkRun is the launch of a program that does nothing.
func BenchmarkRun(b *testing.B) {
	for _, np := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("np=%d", np), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := Run(context.Background(), Job{NP: np, Argv: []string{"true"}}); err != nil || r.ExitStatus != 0 {
					b.Fatal(r, err)
				}
			}
		})
	}
}
